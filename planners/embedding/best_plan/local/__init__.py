"""The local search, and the runs of it that look for the best plan."""
