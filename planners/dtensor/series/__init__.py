"""Releases of torch, each driven in a child process that has it first on its import path."""
