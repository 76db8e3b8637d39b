"""The search for the plan that torchrec finds, compiled."""
