"""Captures real planning problems of torchrec while they are planned, as files."""
