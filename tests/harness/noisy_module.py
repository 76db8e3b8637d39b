"""A module that prints while it is imported, as some libraries do."""

print("noise of an import")
