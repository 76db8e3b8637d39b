"""Proven bounds on the rating of all plans."""
