"""Cells as they are stored: one JSON line each."""
