"""`shardbench report A B`: what changed between two results files."""
