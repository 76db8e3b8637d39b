"""The model that AutoParallel plans; it copies the class by its module's name."""

import torch
from torch import nn


class Block(nn.Module):
    """An attention without heads, and two layers with a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output, of the shape of the input."""
        scores = self.query(x) @ self.key(x).transpose(1, 2)
        x = x + self.out(torch.softmax(scores, -1) @ self.value(x))
        return x + self.down(torch.relu(self.up(x)))
