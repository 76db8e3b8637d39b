"""The types that are stored and passed on between the parts of the harness."""
