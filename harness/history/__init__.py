"""Commits of a library, run from their checkouts, and the steps between them."""
