"""Shared parts of the compiled searches: the search space, kernels, estimates and deadlines."""
