"""The planner that takes the place of torchrec's in a program of one's own."""
