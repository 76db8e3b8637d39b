"""A family and a variant of one's own for shardbench."""
