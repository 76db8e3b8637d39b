"""The exact search, for small problems."""
