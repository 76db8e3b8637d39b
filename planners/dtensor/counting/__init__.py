"""Count the work of a program and what outlives its steps."""
