"""Measure DTensor in one release of torch, in a child process that imports this release.

The programs `ops` and `mlp` are the family's, rewritten with public names that exist since torch
2.5. Only the fake process group and the caches need private names: no release has public ones. The
other programs are the family's own, which run since torch 2.10. The phase `miss` is one step on
cold caches; the phase `hit` is the next step.
"""

import hashlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

from harness.contract import Driven, Recorder, Topology, UsageError, WorkloadSpec, count_calls
from planners.dtensor.counting.keeping import kept_per_step
from planners.dtensor.workloads import ROUNDS, parameters_of

Step = Callable[[], Sequence[torch.Tensor]]

_PROGRAMS = ("ops", "mlp", "optimizer", "dynamic", "fsdp2-step")

_PROPAGATOR = DTensor._op_dispatcher.sharding_propagator


def drive(workload: WorkloadSpec, topology: Topology, _: str) -> Driven:
    """Return a step of a program; a call is a step on cold caches and the next step."""
    step = _step(workload, topology)

    def cold_and_warm(recorder: Recorder) -> Sequence[torch.Tensor]:
        with recorder.phase("miss"):
            outputs = step()
        with recorder.phase("hit"):
            step()
        return outputs

    @contextmanager
    def observe(recorder: Recorder) -> Iterator[None]:
        yield
        _forget()
        step()
        hits = _hits()
        _, warm = count_calls(step)
        hits = _hits() - hits
        kept = kept_per_step(step)
        recorder.counters.update(
            misses=_misses(step),
            hits=hits,
            warm_calls=sum(warm.values()),
            objects_kept=kept.objects,
            bytes_kept=kept.bytes,
        )

    return Driven(
        library=torch,
        run=cold_and_warm,
        fingerprint=lambda outputs: _fingerprint(outputs, has_new_sizes=workload.name == "dynamic"),
        parts=lambda: {"miss": step},
        observe=observe,
        renew=_forget,
    )


def _forget() -> None:
    debug = importlib.import_module("torch.distributed.tensor.debug")
    for name in ("_clear_fast_path_sharding_prop_cache", "_clear_python_sharding_prop_cache"):
        clear = getattr(debug, name, None)
        if clear is not None:
            clear()
    clear = getattr(_PROPAGATOR.propagate_op_sharding, "cache_clear", None)
    if clear is not None:
        clear()


def _hits() -> int:
    """Return the hits since the caches were cleared: of Python's and, since 2.10, C++'s cache."""
    in_cpp = getattr(torch._C, "_get_DTensor_sharding_propagator_cache_stats", None)
    in_python = _PROPAGATOR.propagate_op_sharding.cache_info().hits
    return int(in_python + (in_cpp()[0] if in_cpp else 0))


def _misses(step: Step) -> int:
    """Run a step on cold caches, and return the number of decisions that it makes.

    On a miss, C++ calls the Python function patched here; before 2.10, Python's cache counts.
    """
    _forget()
    made = 0
    propagate = _PROPAGATOR.propagate_op_sharding_non_cached

    def counted(*args: Any) -> Any:
        nonlocal made
        made += 1
        return propagate(*args)

    with mock.patch.object(_PROPAGATOR, "propagate_op_sharding_non_cached", counted, create=True):
        step()
    return max(made, int(_PROPAGATOR.propagate_op_sharding.cache_info().misses))


def _step(workload: WorkloadSpec, topology: Topology) -> Step:
    parameters = parameters_of(workload)
    if workload.name not in _PROGRAMS or "dims" in workload.parameters:
        raise UsageError(
            f"Releases are measured on {', '.join(_PROGRAMS)} of one dimension, not on {workload}."
        )
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if dist.is_initialized():
        dist.destroy_process_group()
    if workload.name in _PROGRAMS[2:]:
        from planners.dtensor.programs.build import build_program  # older releases lack its names

        return build_program(workload, topology).step
    ranks = topology.gpus
    dist.init_process_group(backend="fake", rank=0, world_size=ranks, store=FakeStore())
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("tensor",))
    return _ops(mesh, parameters.op) if workload.name == "ops" else _mlp(mesh)


def _ops(mesh: DeviceMesh, names: tuple[str, ...]) -> Step:
    def placed(*shape: int, shard: bool = False) -> DTensor:
        placements = [Shard(0) if shard else Replicate()]
        return DTensor.from_local(torch.randn(shape), mesh, placements, run_check=False)

    rows, whole = placed(4, 16, shard=True), placed(4, 16)
    weight, bias = placed(16, 8), placed(8)
    size = rows.shape[0]
    known: dict[str, Callable[[], torch.Tensor]] = {
        "addmm": lambda: torch.addmm(bias, rows, weight),
        "mm": lambda: torch.mm(rows, weight),
        "mul": lambda: torch.mul(rows, rows),
        "relu": lambda: torch.relu(rows),
        "add-scalar": lambda: rows + 1.0,
        "view": lambda: whole.view(4, 4, 4),
        "view-sharded": lambda: rows.view(size, 4, 4),
        "t": lambda: torch.t(rows),
    }
    return lambda: [known[name]() for _ in range(ROUNDS) for name in names]


def _mlp(mesh: DeviceMesh) -> Step:
    hidden = 8 * mesh.size()
    module = torch.nn.Sequential(
        torch.nn.Linear(16, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 16)
    )
    module = parallelize_module(module, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    batch = torch.randn(4, 16)

    def step() -> list[torch.Tensor]:
        module.zero_grad()
        output = module(batch)
        output.sum().backward()
        return [output.detach(), *(weight.grad for weight in module.parameters())]

    return step


def _fingerprint(outputs: Sequence[torch.Tensor], has_new_sizes: bool) -> str:
    """Return a hash of placements, types and shapes (no shapes for `dynamic`, which vary)."""
    digest = hashlib.sha256()
    for output in outputs:
        placements = str(output.placements) if isinstance(output, DTensor) else "local"
        shape = "any" if has_new_sizes else list(output.shape)
        digest.update(f"{placements} {shape} {output.dtype}\n".encode())
    return digest.hexdigest()[:16]
