"""The search for a plan near a proven bound."""
