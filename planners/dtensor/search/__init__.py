"""Decide an op after a miss without trying every strategy."""
