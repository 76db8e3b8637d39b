"""Step and train with Muon on gloo ranks: python muon_trainings.py RANKS

Prints nothing if every step is Muon's on whole matrices, to the last bit.
"""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from gloo import on_ranks
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard
from torch.optim import AdamW, Muon

from planners.dtensor.optimizer.muon import MuonStep
from shardbench import accelerate_optimizer

STEPS = 20
SHAPES = ((8, 6), (5, 16), (3, 3), (1, 7), (16, 2))
PLACEMENTS = {
    1: ((Shard(0),), (Shard(1),), (Replicate(),)),
    2: (
        (Replicate(), Shard(0)),
        (Shard(0), Shard(1)),
        (Shard(0), Shard(0)),
        (_StridedShard(0, split_factor=2), Shard(0)),
    ),
}
OPTIONS = (
    {},
    {"nesterov": False, "weight_decay": 0.0, "ns_steps": 3},
    {"momentum": 0.5, "adjust_lr_fn": "match_rms_adamw", "lr": torch.tensor(0.01)},
)


def split(whole, mesh, placements):
    """Return the DTensor of a matrix, the same on all ranks."""
    if type(placements[0]) is not _StridedShard:
        return distribute_tensor(whole.clone(), mesh, placements)
    first, second = mesh.get_coordinate()
    parts = [*whole.chunk(2)[second].chunk(2), whole[:0]] if second < len(whole.chunk(2)) else ()
    local = parts[min(first, len(parts) - 1)] if parts else whole[:0]
    shape, stride = whole.shape, whole.stride()
    return DTensor.from_local(
        local.clone(), mesh, placements, run_check=False, shape=shape, stride=stride
    )


def check_steps(mesh, options):
    """Step matrices of all shapes and placements, in one bucket and in many."""
    cases = [(shape, of) for shape in SHAPES for of in PLACEMENTS[mesh.ndim]]
    for elements in (40, 10_000):
        torch.manual_seed(0)
        whole = [nn.Parameter(torch.randn(shape)) for shape, _ in cases]
        parts = [
            nn.Parameter(split(w.data, mesh, of)) for w, (_, of) in zip(whole, cases, strict=True)
        ]
        by_torch, ours = Muon(whole, **options), Muon(parts, **options)
        with accelerate_optimizer(ours) as accelerated:
            accelerated._step = MuonStep(elements)
            for _ in range(3):
                for w, part, (shape, of) in zip(whole, parts, cases, strict=True):
                    w.grad = torch.randn(shape)
                    part.grad = split(w.grad, mesh, of)
                by_torch.step()
                ours.step()
            assert accelerated.info() == (len(cases), {}), accelerated.info()
        for w, part, (_, of) in zip(whole, parts, cases, strict=True):
            for expected, made in (
                (w.data, part),
                (by_torch.state[w]["momentum_buffer"], ours.state[part]["momentum_buffer"]),
            ):
                assert made.placements == of
                assert torch.equal(made._local_tensor, split(expected, mesh, of)._local_tensor)


def train(distribute, folder=None):
    """Return the losses of a training, and the matrices; its state is saved on the way."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 9), nn.LayerNorm(9), nn.Linear(9, 7), nn.Linear(7, 6))
    distribute(model)
    matrices = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim != 2]
    muon, adamw = Muon(matrices, lr=0.02), AdamW(rest, lr=0.01)
    switched = [accelerate_optimizer(each) for each in (muon, adamw) if folder]
    clip = switched[0].clip_grad_norm_ if switched else nn.utils.clip_grad_norm_
    losses = []
    for step in range(STEPS):
        batch = torch.randn(4, 6, generator=torch.Generator().manual_seed(step))
        loss = nn.functional.mse_loss(model(batch), batch.sin())
        loss.backward()
        clip(model.parameters(), 1e9)  # so large that no gradient changes
        muon.step()
        adamw.step()
        model.zero_grad()
        losses.append(loss.item())
        if folder and step == STEPS // 2:
            state = {"muon": get_optimizer_state_dict(model, muon)}
            dcp.save(state, checkpoint_id=folder)
            for each in muon.state.values():
                each["momentum_buffer"].zero_()
            dcp.load(state, checkpoint_id=folder)
            set_optimizer_state_dict(model, muon, state["muon"])
            switched[0].stop()
            switched[0] = accelerate_optimizer(muon)
    if switched:
        assert switched[0].info() == (len(matrices), {}), switched[0].info()
    return losses, [getattr(p, "full_tensor", lambda p=p: p)() for p in matrices]


def run(rank, folder):
    """Check steps on meshes of one and two dimensions, then trainings under FSDP2 and HSDP."""
    ranks = dist.get_world_size()
    meshes = [init_device_mesh("cpu", (ranks,), mesh_dim_names=("shard",))]
    if ranks == 4:
        meshes.append(init_device_mesh("cpu", (2, 2), mesh_dim_names=("copy", "shard")))
    losses, matrices = train(lambda model: model)
    for mesh in meshes:
        for options in OPTIONS:
            check_steps(mesh, options)
        place = str(folder / str(mesh.ndim))
        made, trained = train(lambda model, mesh=mesh: fully_shard(model, mesh=mesh), place)
        assert made == losses, (made, losses)
        assert all(map(torch.equal, trained, matrices))


if __name__ == "__main__":
    on_ranks(run, int(sys.argv[1]))
