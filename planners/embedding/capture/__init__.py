"""A real planning problem of torchrec: captured while it is planned, built again from a file."""
