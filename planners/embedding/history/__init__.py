"""Commits of torchrec's repository, each driven in a child process that has its checkout first."""
