"""Scenes in which a sharded model runs where others look at it: modes, compilers, exports."""

from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from watchers import MODES, under_mode

from planners.dtensor.accelerate import accelerate

RANKS = 2


def sharded() -> nn.Module:
    mesh = init_device_mesh("cpu", (RANKS,))
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def step(model: nn.Module) -> None:
    model(torch.ones(2, 4)).sum().backward()


def selective(model: nn.Module, saves_all: bool = False) -> list[str]:
    ops: list[str] = []

    def policy(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        ops.append(str(op))
        is_saved = saves_all or op is torch.ops.aten.addmm.default
        return CheckpointPolicy.MUST_SAVE if is_saved else CheckpointPolicy.PREFER_RECOMPUTE

    x = torch.ones(2, 4, requires_grad=True)
    made = checkpoint(
        model,
        x,
        use_reentrant=False,
        context_fn=lambda: create_selective_checkpoint_contexts(policy),
    )
    made.sum().backward()
    return ops


def profiled(model: nn.Module, **options: Any) -> list[str]:
    config = torch.profiler._ExperimentalConfig(**options)
    with torch.profiler.profile(experimental_config=config) as profiler:
        step(model)
    return sorted(event.key for event in profiler.key_averages() if "FSDP" in event.key)


def compiled(model: nn.Module) -> list[Any]:
    torch._dynamo.reset()
    torch.compile(model, backend="aot_eager")(torch.ones(2, 4)).sum().backward()
    return [list(weight.grad.shape) for weight in model.parameters()]


def stepped(backend: str) -> list[float]:
    torch._dynamo.reset()
    mesh = init_device_mesh("cpu", (RANKS,))
    weight = nn.Parameter(distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)]))
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    step = torch.compile(optimizer.step, backend=backend)
    step()
    step()
    assert isinstance(weight, DTensor)
    return weight.to_local().detach().flatten().tolist()


def exported() -> str:
    program = torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),))
    return program.run_decompositions().graph_module.code


WATCHED = {
    "sac": selective,
    "sac that saves all": lambda model: selective(model, saves_all=True),
    **{name: lambda model, name=name: under_mode(name)(step, model)[1] for name in MODES},
    "profile": profiled,
    "profile of all threads": lambda model: profiled(model, profile_all_threads=True),
}
COMPILED = {
    "model": compiled,
    "compile": lambda _: torch.compile(lambda x: x * 2 + 1)(torch.ones(2)).tolist(),
    "export": lambda _: exported(),
    "decomposition": lambda _: len(list(torch.export.default_decompositions().keys())),
    "step by eager": lambda _: stepped("eager"),
    "step by aot_eager": lambda _: stepped("aot_eager"),
    "step by inductor": lambda _: stepped("inductor"),
}
SCENES = WATCHED | COMPILED


def seen(scene: str, *, is_warm: bool, accelerates: bool) -> Any:
    """Return what is seen in a scene with a new model, after a step of the model if `is_warm`."""
    model = sharded()
    if is_warm:
        step(model)
    with accelerate() if accelerates else nullcontext():
        return SCENES[scene](model)


def seen_first(scene: str, is_warm: bool) -> list[Any]:
    """Return what the first scene of this process shows when accelerated, and the next without."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    found = [seen(scene, is_warm=is_warm, accelerates=is_on) for is_on in (True, False)]
    dist.destroy_process_group()
    return found
