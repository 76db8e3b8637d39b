"""The local search for the best plan, by large neighbourhood search and annealing."""
