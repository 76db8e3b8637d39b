"""Implementations of op dispatch on DTensors, which replace torch's inside a context."""
