"""Workloads: which there are, and the problems that are made up."""
