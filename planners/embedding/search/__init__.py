"""Compiled searches for a plan."""
