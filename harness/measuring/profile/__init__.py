"""Profiles of calls, and the difference of two variants."""
