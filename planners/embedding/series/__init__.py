"""Measures releases and commits of torchrec, each in a child process of its own."""
