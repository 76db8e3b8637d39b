"""Remember what to do with an op on inputs of known specs."""
