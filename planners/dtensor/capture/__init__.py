"""Capture the ops of a training step, and replay them on tensors without values."""
