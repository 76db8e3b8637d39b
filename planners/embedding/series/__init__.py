"""Releases and commits of torchrec, each driven in a child process of its own."""
