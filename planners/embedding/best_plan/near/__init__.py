"""Plans near a previous plan: the bytes that they move, a search within a budget, and a bound."""
