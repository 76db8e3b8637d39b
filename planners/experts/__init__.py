"""The experts family: planners that place replicas of a model's experts on GPUs."""

from planners.experts.family import FAMILY
from planners.experts.variants import deepseek, ours, swift, vllm, zigzag  # registers them

__all__ = ["FAMILY", "deepseek", "ours", "swift", "vllm", "zigzag"]
