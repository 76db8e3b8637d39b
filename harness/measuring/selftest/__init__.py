"""The self-test: what a machine can resolve, and the file of what was found."""
