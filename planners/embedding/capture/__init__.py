"""Captures planning problems of a running torchrec program as files."""
