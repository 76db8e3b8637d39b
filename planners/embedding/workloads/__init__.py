"""Workloads: a catalog of all table sets, and generated test problems."""
