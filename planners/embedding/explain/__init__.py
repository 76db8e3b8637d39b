"""Explanations of plans, for `shardbench explain`."""
