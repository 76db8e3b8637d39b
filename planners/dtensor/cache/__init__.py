"""Remember how to carry out an op on inputs of known specs."""
