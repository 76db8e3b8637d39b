"""Searches for a plan with a rating close to a proven lower bound."""
