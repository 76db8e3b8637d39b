"""Decide what a miss asks for, without trying every strategy."""
