"""The modules that the workloads train, in torch's own tensor-parallel styles."""

from collections import OrderedDict

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

_HEAD_WIDTH = 8


def _feed_forward(width: int, hidden: int) -> nn.Sequential:
    layers = {"up": nn.Linear(width, hidden), "relu": nn.ReLU(), "down": nn.Linear(hidden, width)}
    return nn.Sequential(OrderedDict(layers))


class _CausalAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        for name in ("query", "key", "value", "output"):
            self.add_module(name, nn.Linear(width, width, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = (
            projected(x).unflatten(-1, (-1, _HEAD_WIDTH)).transpose(1, 2)
            for projected in (self.query, self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.output(mixed.transpose(1, 2).flatten(-2))


class _TransformerBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = _CausalAttention(width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = _feed_forward(width, 4 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


def mlp(mesh: DeviceMesh) -> nn.Module:
    """Return an MLP, column-wise then row-wise parallel: 16 features, 8 hidden ones per rank."""
    module = _feed_forward(16, 8 * mesh.size())
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in module.parameters():
            # Small whole numbers, so that sums of products are exact: the same on any CPU.
            weight.copy_(torch.randint(-3, 4, weight.shape, generator=generator))
    module.to(mesh.device_type)
    return parallelize_module(module, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def transformer(layers: int) -> nn.Module:
    """Return blocks of 8 heads of 8 features, not distributed."""
    torch.manual_seed(0)
    return nn.Sequential(*(_TransformerBlock(8 * _HEAD_WIDTH) for _ in range(layers)))


def transformer_block(mesh: DeviceMesh) -> nn.Module:
    """Return a pre-norm block, tensor- and sequence-parallel: a head of 8 features per rank."""
    torch.manual_seed(0)
    gathered = PrepareModuleInput(
        input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),), use_local_output=True
    )
    return parallelize_module(
        _TransformerBlock(_HEAD_WIDTH * mesh.size()).to(mesh.device_type),
        mesh,
        {
            "attention_norm": SequenceParallel(),
            "attention": gathered,
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.output": RowwiseParallel(output_layouts=Shard(1)),
            "feed_forward_norm": SequenceParallel(),
            "feed_forward": gathered,
            "feed_forward.up": ColwiseParallel(),
            "feed_forward.down": RowwiseParallel(output_layouts=Shard(1)),
        },
    )
