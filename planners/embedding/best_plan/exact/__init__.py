"""The exact search for small problems, by branch and bound."""
