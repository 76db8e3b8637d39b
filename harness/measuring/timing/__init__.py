"""Timing: turns of calls, the ways to put calls beside one another, ratios and verdicts."""
