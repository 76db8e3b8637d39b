"""Measure commits of ColossalAI, each in its own child process."""
