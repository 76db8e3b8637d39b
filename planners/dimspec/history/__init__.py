"""Commits of ColossalAI's repository, each driven in a child that has its checkout first."""
