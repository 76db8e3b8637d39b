"""One plan for use: made, explained, or captured from a live planner."""
