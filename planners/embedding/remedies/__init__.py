"""Remedies for a problem without a plan: what to change, and how little is enough."""
