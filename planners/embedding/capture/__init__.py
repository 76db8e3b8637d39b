"""Captures the planning problems of a running torchrec program in files."""
