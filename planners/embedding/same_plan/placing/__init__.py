"""A compiled form of torchrec's partitioners."""
