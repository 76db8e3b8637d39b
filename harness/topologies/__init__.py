"""What a machine is seen to be made of, its row in a topology file, and the traps in such rows."""
