"""Optimizer steps and gradient clipping on the local tensors of DTensors."""
