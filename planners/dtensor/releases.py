"""Measure DTensor in one release of torch, in a child process that imports this release.

The phase `miss` is one step of a program on cold caches; the phase `hit` is the next step. The
programs, and torch's cache of decisions in C++, exist since torch 2.10.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import (
    _clear_fast_path_sharding_prop_cache,
    _clear_python_sharding_prop_cache,
)

from harness.contract import Driven, Recorder, Topology, WorkloadSpec, count_calls
from planners.dtensor.keeping import kept_per_step
from planners.dtensor.programs.build import build_program

_PROPAGATOR = DTensor._op_dispatcher.sharding_propagator


def drive(workload: WorkloadSpec, topology: Topology, _: str) -> Driven:
    """Return a step of a program; a call is a step on cold caches and the next step."""
    torch.set_num_threads(1)
    program = build_program(workload, topology)
    step = program.step

    def cold_and_warm(recorder: Recorder) -> Sequence[torch.Tensor]:
        with recorder.phase("miss"):
            outputs = step()
        with recorder.phase("hit"):
            step()
        return outputs

    def fingerprint(outputs: Sequence[torch.Tensor]) -> str:
        digest = hashlib.sha256()
        for output in outputs:
            placements = str(output.placements) if isinstance(output, DTensor) else "local"
            shape = "any" if program.is_dynamic else list(output.shape)
            digest.update(f"{placements} {shape} {output.dtype}\n".encode())
        return digest.hexdigest()[:16]

    @contextmanager
    def observe(recorder: Recorder) -> Iterator[None]:
        yield
        _forget()
        step()
        hits = _hits()
        _, warm = count_calls(step)
        hits = _hits() - hits
        kept = kept_per_step(step)
        _forget()
        name = "propagate_op_sharding_non_cached"  # which C++ calls on a miss
        propagate = mock.Mock(side_effect=getattr(_PROPAGATOR, name))
        with mock.patch.object(_PROPAGATOR, name, propagate, create=True):
            step()
        recorder.counters.update(
            misses=propagate.call_count,
            hits=hits,
            warm_calls=sum(warm.values()),
            objects_kept=kept.objects,
            bytes_kept=kept.bytes,
        )

    return Driven(
        library=torch,
        run=cold_and_warm,
        fingerprint=fingerprint,
        parts=lambda: {"miss": step},
        observe=observe,
        renew=_forget,
    )


def _forget() -> None:
    _clear_fast_path_sharding_prop_cache()
    _clear_python_sharding_prop_cache()


def _hits() -> int:
    """Return the hits since the caches were cleared, of Python's cache and of C++'s."""
    in_cpp, _ = torch._C._get_DTensor_sharding_propagator_cache_stats()
    return int(in_cpp + _PROPAGATOR.propagate_op_sharding.cache_info().hits)
