"""A small model that is fully sharded, and tensor-parallel on a mesh of two dimensions."""

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(8, 8)
        self.up = torch.nn.Linear(8, 16)
        self.down = torch.nn.Linear(16, 8)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(self.embedding(rows)))) * 1.0


def sharded_model(mesh: DeviceMesh) -> torch.nn.Module:
    """Return a model, fully sharded over the outer mesh dim and tensor-parallel over the inner."""
    torch.manual_seed(0)
    outer, *inner = mesh.mesh_dim_names
    model: torch.nn.Module = Model()
    if inner:
        plan = {
            "embedding": RowwiseParallel(input_layouts=Replicate()),
            "up": ColwiseParallel(),
            "down": RowwiseParallel(),
        }
        model = parallelize_module(model, mesh[inner[0]], plan)
    for part in (model.up, model.down, model):
        fully_shard(part, mesh=mesh[outer])
    return model
