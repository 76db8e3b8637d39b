"""Decide an op after a cache miss without trying every strategy."""
