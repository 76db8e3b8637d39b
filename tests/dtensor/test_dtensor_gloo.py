"""Training on four gloo ranks is torch's to the last bit, and norms are within rounding."""

from functools import partial

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from gloo import on_ranks
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict as optimizer_state,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from trainings import exact

from planners.dtensor.accelerate import accelerate
from planners.dtensor.optimizer.accelerate import accelerate_optimizer

RANKS = 4
WIDTH, HIDDEN = 6, 20
STEPS = 6


def fsdp(model, **options):
    mesh = init_device_mesh("cpu", (RANKS,))
    for layer in model:
        fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)


def hybrid(model):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copy", "shard"))
    fully_shard(model, mesh=mesh)


def tensor_parallel(model, mesh=None):
    styles = {
        "0": SequenceParallel(sequence_dim=0),
        "1": ColwiseParallel(input_layouts=Shard(0)),
        "3": RowwiseParallel(output_layouts=Shard(0)),
    }
    parallelize_module(model, mesh or init_device_mesh("cpu", (RANKS,)), styles)


def both(model):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    styles = {"1": ColwiseParallel(), "3": RowwiseParallel()}
    parallelize_module(model, mesh["tensor"], styles)
    for layer in (model[1], model[3]):
        fully_shard(layer, mesh=mesh["data"])


WAYS = {
    "fsdp": (fsdp, False),
    "offloaded": (partial(fsdp, offload_policy=CPUOffloadPolicy(pin_memory=False)), False),
    "mixed": (partial(fsdp, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32)), False),
    "kept on two ranks": (partial(fsdp, reshard_after_forward=2), False),
    "hybrid": (hybrid, False),
    "tensor parallel": (tensor_parallel, True),
    "both": (both, True),
}
OPTIMIZERS = {
    "adamw": partial(torch.optim.AdamW, lr=0.01, foreach=True, amsgrad=True),
    "fused": partial(torch.optim.Adam, lr=0.01, fused=True),
    "sgd": partial(torch.optim.SGD, lr=0.1, momentum=0.9, foreach=False),
}


def train(distribute, make, is_alike, folder=None, *, accelerated):
    """Return losses, weights, states and norms; in between, the state is saved and loaded."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.LayerNorm(WIDTH), nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH)
    )
    distribute(model)
    parameters = [p for p in model.parameters() if isinstance(p, DTensor)]
    optimizer = make(parameters)
    switched = accelerate_optimizer(optimizer) if accelerated else None
    clip = switched.clip_grad_norm_ if switched else nn.utils.clip_grad_norm_
    losses, norms = [], []
    for step in range(STEPS):
        torch.manual_seed(step if is_alike else step * RANKS + dist.get_rank())
        batch = torch.randn(4, WIDTH)
        loss = nn.functional.mse_loss(model(batch), batch.sin())
        loss.backward()
        norm = clip(parameters, 1e9)  # so large that no gradient changes
        norms.append(norm.full_tensor().item())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step == STEPS // 2 and folder:
            state = {"optimizer": optimizer_state(model, optimizer)}
            dcp.save(state, checkpoint_id=folder)
            dcp.load(state, checkpoint_id=folder)
            set_optimizer_state_dict(model, optimizer, state["optimizer"])
    states = [[exact(each) for each in optimizer.state[p].values()] for p in parameters]
    return losses, list(map(exact, parameters)), states, norms, switched and switched.info()


def compare(rank, folder):
    """Train in every way with every optimizer, by torch and accelerated."""
    for way, (distribute, is_alike) in WAYS.items():
        for name, make in OPTIMIZERS.items():
            saved = [str(folder / f"{way} {name} {each}") for each in range(2)]
            places = saved if way in ("fsdp", "hybrid") else (None, None)
            *expected, norms, _ = train(distribute, make, is_alike, places[0], accelerated=False)
            with accelerate():
                *found, close, info = train(distribute, make, is_alike, places[1], accelerated=True)
            assert found == expected, (way, name)
            torch.testing.assert_close(close, norms)
            # The norm's gradients are partial under tensor parallelism.
            assert name != "sgd" or info.local == (4 if is_alike else 6), (way, name, info)


@pytest.mark.long
def test_training_on_gloo_is_torchs():
    """FSDP2, offloaded or not, and tensor parallelism train as in torch, on local tensors."""
    on_ranks(compare, RANKS)
