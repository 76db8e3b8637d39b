"""A folder of plans that planners found before, to use again."""
