"""The program of a Muon step on the sharded matrices of a model, and its work on each rank."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from planners.dtensor.optimizer.muon import ELEMENTS
from planners.dtensor.optimizer.muon_layout import buckets_of, group_of, matrix_of
from planners.dtensor.optimizer.muon_owners import least_largest, newton_schulz_flops
from planners.dtensor.programs.program import OpProgram, placed, small_integers
from planners.dtensor.workloads import MuonParameters

Shape = tuple[int, int]


def gpt2_xl(layers: int) -> Iterator[Shape]:
    """Yield the matrices of GPT-2 XL's blocks, all sides divided by 25 (openai-community/gpt2-xl).

    Attention and its projection, then the two of the MLP, as rows and columns; 48 layers in all.
    """
    for _ in range(layers):
        yield from ((192, 64), (64, 64), (256, 64), (64, 256))


def deepseek_v2_lite(layers: int) -> Iterator[Shape]:
    """Yield the matrices of DeepSeek-V2-Lite, all sides divided by 64 (its config.json).

    27 layers in all: attention with a compressed key and value, then a dense MLP in the first
    layer, and 64 experts and 2 shared ones in one MLP of twice the width in the others.
    """
    for layer in range(layers):
        yield from ((48, 32), (9, 32), (64, 8), (32, 32))
        experts, width = (1, 171) if layer == 0 else (64, 22)
        for _ in range(experts):
            yield from ((width, 32), (width, 32), (32, width))
        if layer:
            yield from ((44, 32), (44, 32), (32, 44))


MODELS = {"gpt2-xl": gpt2_xl, "deepseek-v2-lite": deepseek_v2_lite}


def muon_step(mesh: DeviceMesh, parameters: MuonParameters) -> OpProgram:
    """Return the program of a step of Muon; matrices are sharded over the last mesh dimension."""
    placements = [*[Replicate()] * (mesh.ndim - 1), Shard(parameters.shard)]
    weights = []
    for shape in MODELS[parameters.model](parameters.layers):
        part, _ = compute_local_shape_and_global_offset(shape, mesh, placements, skip_offset=True)
        whole = {"shape": torch.Size(shape), "stride": (shape[1], 1)}
        weights.append(nn.Parameter(placed(mesh, small_integers(*part), placements, **whole)))
        weights[-1].grad = placed(mesh, small_integers(*part), placements, **whole)
    optimizer = torch.optim.Muon(weights)

    def step() -> list[torch.Tensor]:
        optimizer.step()
        return [
            part
            for weight in weights
            for part in (weight, optimizer.state[weight]["momentum_buffer"])
        ]

    names = [f"{part} {at}" for at in range(len(weights)) for part in ("parameter", "momentum")]
    return OpProgram(
        mesh,
        step,
        tuple(names),
        size=len(weights),
        compares_values=False,
        compares_moves=False,
        optimizer=optimizer,
        is_muon=True,
    )


class Work(NamedTuple):
    """Newton-Schulz flops over those of an even split: the slowest rank's, and no plan's less."""

    slowest: float
    bound: float


def work_of(weights: Sequence[torch.Tensor], *, owned: bool) -> Work:
    """Return the work of a step in which owners orthogonalise, or in which every rank does all."""
    mesh = weights[0]._spec.mesh
    costs, ranks = [newton_schulz_flops(*weight.shape) for weight in weights], mesh.size()
    mean = sum(costs) / ranks
    slowest = sum(costs)
    if owned:
        parts = (matrix_of(weight._spec, group_of(mesh)) for weight in weights)
        buckets = buckets_of([part for part in parts if part is not None], ranks, ELEMENTS)
        slowest = sum(bucket.owners.largest for bucket in buckets)
    return Work(slowest / mean, least_largest(costs, ranks) / mean)
