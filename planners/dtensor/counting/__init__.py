"""Count the work of a program and the objects that outlive its steps."""
