"""Commits of ColossalAI, each driven in a child process of its own."""
