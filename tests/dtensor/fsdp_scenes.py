"""Run a sharded model where others look at it: python fsdp_scenes.py plain|accelerate SCENE [warm]

Each scene is the first of its process, as torch looks up some names only once. It prints what a
mode, a compiler or an export saw, which has to be the same with and without `accelerate()`.
"""

import sys
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.overrides import TorchFunctionMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from torch.utils.flop_counter import FlopCounterMode

from planners.dtensor.accelerate import accelerate

RANKS = 2


def sharded() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    for layer in model:
        fully_shard(layer)
    return fully_shard(model)


class Ops(TorchDispatchMode):
    """Notes the ops of a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(op))
        return op(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    """Notes torch's functions that a thread calls."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None):
        self.seen.append(str(getattr(called, "__name__", called)))
        return called(*args, **(kwargs or {}))


def step(model: nn.Module, around: Any = nullcontext) -> Any:
    with around() as entered:
        model(torch.ones(2, 4)).sum().backward()
    return entered


def selective(model: nn.Module, saves_all: bool = False) -> list[str]:
    seen: list[str] = []

    def policy(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        seen.append(str(op))
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
    return seen


def profiled(model: nn.Module, **options: Any) -> list[str]:
    config = torch.profiler._ExperimentalConfig(**options)
    with torch.profiler.profile(experimental_config=config) as profiler:
        step(model)
    return sorted(event.key for event in profiler.key_averages() if "FSDP" in event.key)


def compiled(model: nn.Module, backend: str) -> list[Any]:
    torch.compile(model, backend=backend)(torch.ones(2, 4)).sum().backward()
    return [weight.grad.shape for weight in model.parameters()]


def stepped(backend: str) -> list[float]:
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


SCENES = {
    "sac": selective,
    "sac that saves all": lambda model: selective(model, saves_all=True),
    "flops": lambda m: step(m, lambda: FlopCounterMode(display=False)).get_total_flops(),
    "comm": lambda m: sorted(map(str, step(m, CommDebugMode).get_comm_counts().items())),
    "debug": lambda model: step(model, DebugMode).debug_string(),
    "ops": lambda model: step(model, Ops).seen,
    "functions": lambda model: step(model, Functions).seen,
    "profile": profiled,
    "profile of all threads": lambda model: profiled(model, profile_all_threads=True),
    "compiled model": lambda model: compiled(model, "aot_eager"),
    "compile": lambda _: torch.compile(lambda x: x * 2 + 1)(torch.ones(2)).tolist(),
    "export": lambda _: exported(),
    "decomposition": lambda _: len(list(torch.export.default_decompositions().keys())),
    "step by eager": lambda _: stepped("eager"),
    "step by aot_eager": lambda _: stepped("aot_eager"),
    "step by inductor": lambda _: stepped("inductor"),
}


if __name__ == "__main__":
    how, scene, *warm = sys.argv[1:]
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    model = sharded()
    if warm:
        step(model)
    with accelerate() if how == "accelerate" else nullcontext():
        print(SCENES[scene](model))
    dist.destroy_process_group()
