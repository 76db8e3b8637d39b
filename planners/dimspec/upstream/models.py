"""Models for ColossalAI's strategy constructor: a ResNet, a GPT and MLPs.

They use only ops that ColossalAI's planner supports: out-of-place sums, and ReLU instead of GELU.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Inputs = dict[str, tuple[int, ...]]
"""Shapes in elements by the names of the forward method's arguments."""


class Bottleneck(nn.Module):
    """Three convolutions with a residual connection, from `channels` to 4 x `width` channels."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU()
        self.shortcut: nn.Module | None = None
        if stride != 1 or channels != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map features to features, both of shape (batch, channels, height, width)."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        identity = x if self.shortcut is None else self.shortcut(x)
        return self.relu(out + identity)


class ResNet50(nn.Module):
    """ResNet-50 for ten classes, of four stages of bottlenecks."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        channels = 64
        layers = []
        for stage, count in enumerate((3, 4, 6, 3)):
            for block in range(count):
                stride = 2 if stage and not block else 1
                layers.append(Bottleneck(channels, 64 << stage, stride))
                channels = 4 * (64 << stage)
        self.layers = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (batch, classes) for images (batch, 3, height, width)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.layers(x))
        return self.fc(torch.flatten(x, 1))


class FeedForward(nn.Module):
    """A LayerNorm and an MLP with a hidden width of 4 x `width`, and a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.relu = nn.ReLU()
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` plus the output of the MLP, both of shape (batch, tokens, width)."""
        return x + self.down(self.relu(self.up(self.norm(x))))


class Attention(nn.Module):
    """A LayerNorm and self-attention without mask and scale, and a residual connection."""

    def __init__(self, batch: int, tokens: int, width: int, heads: int) -> None:
        super().__init__()
        self.split = batch, tokens, heads, width // heads
        self.merged = batch, tokens, width
        self.norm = nn.LayerNorm(width)
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.o = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` plus the output of the attention, both of shape (batch, tokens, width)."""
        normal = self.norm(x)
        q = self.q(normal).view(*self.split).permute(0, 2, 1, 3)
        k = self.k(normal).view(*self.split).permute(0, 2, 3, 1)
        v = self.v(normal).view(*self.split).permute(0, 2, 1, 3)
        scores = nn.functional.softmax(torch.matmul(q, k), dim=-1)
        out = torch.matmul(scores, v).permute(0, 2, 1, 3).contiguous().view(*self.merged)
        return x + self.o(out)


def gpt(layers: int, batch: int, tokens: int, width: int, heads: int) -> nn.Module:
    """Return the layers of a GPT, without embeddings and head."""
    blocks: list[nn.Module] = []
    for _ in range(layers):
        blocks += Attention(batch, tokens, width, heads), FeedForward(width)
    return nn.Sequential(*blocks)


MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "resnet50": (ResNet50, {"x": (512, 3, 32, 32)}),
    "gpt12": (lambda: gpt(12, 8, 128, 768, 12), {"input": (8, 128, 768)}),
    "mlp2": (lambda: nn.Sequential(FeedForward(384), FeedForward(384)), {"input": (8, 32, 384)}),
}
