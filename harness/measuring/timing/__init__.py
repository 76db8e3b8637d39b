"""Timing: turns of calls, the ways to run calls of several variants, ratios and verdicts."""
