"""Capture the ops of a training step, and call them again without values."""
