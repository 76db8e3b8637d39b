"""Cache recipes: how to carry out an op on inputs with known specs."""
