"""The optional abilities of a family, one to a module."""
