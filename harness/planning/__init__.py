"""Make a plan for use, explain a plan, or capture the input of a live planner."""
