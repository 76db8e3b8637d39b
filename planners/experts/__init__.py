"""The experts family: planners that place replicas of a model's experts on GPUs."""

from planners.experts.family import FAMILY
from planners.experts.variants import deepseek, ours, swift, upstreams, vllm, zigzag

__all__ = ["FAMILY", "deepseek", "ours", "swift", "upstreams", "vllm", "zigzag"]
