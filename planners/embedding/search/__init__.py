"""The search for a plan, compiled: torchrec's own in a fraction of the time, and better ones."""
