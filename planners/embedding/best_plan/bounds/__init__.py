"""Proven lower bounds on the ratings of all plans."""
