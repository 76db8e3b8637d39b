"""The dtensor family's problem: a program on a mesh, to be called under any dispatch."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch

from harness.contract import NotApplicable, Prepared, Topology, WorkloadSpec
from planners.dtensor.decision import Decision, Redistributions
from planners.dtensor.dispatch.base import Dispatch
from planners.dtensor.dispatch.torch_path import clear_torch_caches
from planners.dtensor.programs.build import build_program
from planners.dtensor.programs.program import OpProgram
from planners.dtensor.programs.world import playing_one_rank

# Some caches keep a call's plan when they see the call for the second time.
_WARM_UPS = 2


@dataclass(frozen=True, slots=True)
class DTensorProblem:
    """A program, and the number of ranks on a host."""

    program: OpProgram
    ranks_per_host: int

    def facts(self) -> dict[str, float | str]:
        """Return the facts that reports show about the problem; `ops` is the problem's size."""
        return {
            "ops": self.program.size,
            "mesh": " x ".join(map(str, self.program.mesh.shape)),
            "ranks per host": self.ranks_per_host,
            "caches": "cold" if self.program.cold else "warm",
        }

    def stepping(self, way: str, dispatch: str = "dispatch.base:Dispatch") -> Prepared[Decision]:
        """Return the program, ready to be called inside the context manager at `module:function`.

        The context manager takes the program's optimizer. By default torch dispatches.
        """
        optimizer = self.program.optimizer
        if optimizer is None:
            raise NotApplicable("The workload has no optimizer.")
        return self.under(dispatch, partial(_named(way), optimizer))

    def under(
        self, dispatch: str, around: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> Prepared[Decision]:
        """Return the program, ready to be called under the dispatch class at `module:class`.

        Entering `installed` clears all caches, then warms them with two calls unless the program
        is marked as cold. All calls are inside the context `around`.
        """
        made: Dispatch = _named(dispatch)()
        program, redistributions = self.program, Redistributions()

        @contextmanager
        def installed() -> Iterator[None]:
            with playing_one_rank(self.ranks_per_host), redistributions.recorded():
                clear(made)
                try:
                    with made.installed(), around():
                        for _ in range(0 if program.cold else _WARM_UPS):
                            call(program, made, redistributions)
                        yield
                finally:
                    clear(made)

        return Prepared(
            run=lambda: call(program, made, redistributions),
            installed=installed,
            may_fork=program.may_fork,
        )


def _named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(f"planners.dtensor.{module}"), attribute)


def build(workload: WorkloadSpec, topology: Topology) -> DTensorProblem:
    """Return the problem of a workload; raises UsageError if it or its mesh is impossible."""
    return DTensorProblem(build_program(workload, topology), topology.gpus_in_domain)


def call(program: OpProgram, dispatch: Dispatch, redistributions: Redistributions) -> Decision:
    """Call a program once and return its decision; a cold program first clears all caches."""
    redistributions.taken()
    if program.cold:
        clear(dispatch)
    outputs = tuple(program.step())
    if program.mesh.device_type == "cuda":
        torch.cuda.synchronize()  # a call ends when its kernels have ended
    return Decision(program, outputs, redistributions.taken())


def clear(dispatch: Dispatch) -> None:
    """Clear torch's caches, and the cache and counts of the dispatch."""
    clear_torch_caches()
    dispatch.clear()
