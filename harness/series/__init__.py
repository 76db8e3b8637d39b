"""A library's releases and commits as points of one axis: listed, run, stored, compared."""
