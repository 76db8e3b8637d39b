"""A compiled search that finds the same plan as torchrec."""
