"""The optional abilities of a planner family, one module for each."""
