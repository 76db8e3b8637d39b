"""Measure DTensor in one release of torch, in a child process that imports this release.

`harness.series` sends the requests that `harness.contract.Series` describes. The programs `ops` and
`mlp` are the family's, rewritten with public names that exist since torch 2.5. Only the fake
process group and the caches need private names: no release has public ones. The other programs are
the family's own, which run since torch 2.10. The phase `miss` is one step on cold caches; the phase
`hit` is the next step.
"""

import hashlib
import importlib
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

from harness.contract import Topology, UsageError, WorkloadSpec, count_calls
from planners.dtensor.counting.keeping import kept_per_step
from planners.dtensor.workloads import ROUNDS, parameters_of
from planners.instruments import timed

Step = Callable[[], Sequence[torch.Tensor]]

_PROGRAMS = ("ops", "mlp", "optimizer", "dynamic", "fsdp2-step")

_PROPAGATOR = DTensor._op_dispatcher.sharding_propagator


def times(request: dict[str, Any]) -> dict[str, Any]:
    """Time a step on cold caches and the next step, in CPU seconds of this process."""
    step = _step(request)

    def cold_and_warm() -> tuple[Sequence[torch.Tensor], dict[str, float]]:
        start = time.process_time()
        outputs = step()
        between = time.process_time()
        step()
        return outputs, {"miss": between - start, "hit": time.process_time() - between}

    _forget()
    (outputs, phases), measured = timed(cold_and_warm)
    return {
        "release": str(torch.__version__),
        "fingerprint": _fingerprint(outputs, request["workload"]),
        **measured,
        "phases": phases,
    }


def counts(request: dict[str, Any]) -> dict[str, Any]:
    """Count calls, cache hits and misses of a step on cold caches and of the next step."""
    step = _step(request)
    _forget()
    outputs, calls = count_calls(step)
    hits = _hits()
    _, warm = count_calls(step)
    hits = _hits() - hits
    kept = kept_per_step(step)
    counters = {
        "misses": _misses(step),
        "hits": hits,
        "warm_calls": sum(warm.values()),
        "objects_kept": kept.objects,
        "bytes_kept": kept.bytes,
    }
    return {
        "imported_from": torch.__file__,
        "fingerprint": _fingerprint(outputs, request["workload"]),
        "quality": {},
        "counters": counters,
        "calls": {"miss": calls},
    }


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


def _step(request: dict[str, Any]) -> Step:
    return _build(request["workload"], Topology(**request["topology"]))


@cache
def _build(workload: str, topology: Topology) -> Step:
    """Build a step and run it once, because its first run differs from later ones."""
    spec = WorkloadSpec.parse(workload)
    parameters = parameters_of(spec)
    if spec.name not in _PROGRAMS or "dims" in spec.parameters:
        raise UsageError(
            f"Releases are measured on {', '.join(_PROGRAMS)} of one dimension, not on {spec}."
        )
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if dist.is_initialized():
        dist.destroy_process_group()
    if spec.name in _PROGRAMS[2:]:
        from planners.dtensor.programs.build import build_program  # older releases lack its names

        step = build_program(spec, topology).step
        step()
        return step
    ranks = topology.gpus
    dist.init_process_group(backend="fake", rank=0, world_size=ranks, store=FakeStore())
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("tensor",))
    step = _ops(mesh, parameters.op) if spec.name == "ops" else _mlp(mesh)
    step()
    return step


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


def _fingerprint(outputs: Sequence[torch.Tensor], workload: str) -> str:
    """Return a hash of placements, types and shapes (no shapes for `dynamic`, which vary)."""
    digest = hashlib.sha256()
    has_new_sizes = WorkloadSpec.parse(workload).name == "dynamic"
    for output in outputs:
        placements = str(output.placements) if isinstance(output, DTensor) else "local"
        shape = "any" if has_new_sizes else list(output.shape)
        digest.update(f"{placements} {shape} {output.dtype}\n".encode())
    return digest.hexdigest()[:16]


HANDLERS = {"times": times, "counts": counts}
