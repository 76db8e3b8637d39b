"""The planner that replaces torchrec's in a user's program."""
