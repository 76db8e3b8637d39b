"""Measure releases of torch, each in a child process with the release on its import path."""
