"""Training steps of small models to capture: tensor-parallel, sequence-parallel, fully sharded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from harness.model.ids import WorkloadSpec
from harness.planning.capture import capture
from planners.dtensor import FAMILY
from planners.dtensor.problem import DTensorProblem
from planners.dtensor.programs.modules import mlp, transformer_block
from planners.dtensor.programs.world import make_mesh

Step = Callable[[], list[torch.Tensor]]


def _trained(model: torch.nn.Module, batch: torch.Tensor, **adamw: bool) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), **adamw)

    def step() -> list[torch.Tensor]:
        optimizer.zero_grad()
        loss = model(batch).pow(2).mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return [loss, norm, *model.parameters()]

    return step


def mlp_step() -> Step:
    """Return a training step of a tensor-parallel MLP, with AdamW in an op per parameter."""
    torch.manual_seed(0)
    return _trained(mlp(make_mesh((8,), ("tensor",))), torch.randn(4, 16), foreach=False)


def block_step() -> Step:
    """Return a step of a tensor- and sequence-parallel transformer block, with foreach AdamW."""
    torch.manual_seed(0)
    block = transformer_block(make_mesh((4,), ("tensor",)))
    return _trained(block, torch.randn(2, 8, 32), foreach=True)


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


def sharded_step() -> Step:
    """Return a step of a tensor-parallel, fully sharded model on a 2 x 4 mesh, with fused AdamW."""
    model = sharded_model(make_mesh((2, 4), ("data", "tensor")))
    return _trained(model, torch.arange(4), fused=True)


STEPS = {"mlp": mlp_step, "block": block_step, "sharded": sharded_step}


def captured(path: Path, step: Callable[[], Any], **options: Any) -> Any:
    """Capture one call of a step, and return its result."""
    with capture("dtensor", path, **options):
        return step()


def problem_in(path: Path, **parameters: str) -> DTensorProblem:
    """Build the problem of a captured file on the ranks stored in the file."""
    workload = WorkloadSpec(str(path), parameters)
    topology = FAMILY.brings(workload)
    assert topology is not None
    return FAMILY.work.build(workload, topology)


def bits(tensors: list[torch.Tensor]) -> list[bytes]:
    """Return the bytes of the local values of tensors."""
    local = (tensor._local_tensor if isinstance(tensor, DTensor) else tensor for tensor in tensors)
    return [part.detach().contiguous().numpy().tobytes() for part in local]
