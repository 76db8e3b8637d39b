"""Plans near another one: what moves, the search among those that move little, their bound."""
