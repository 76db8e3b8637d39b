"""The dtensor family's problem: a program on a mesh, to be called under any dispatch."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import torch

from harness.contract import NotApplicable, Prepared, Topology, WorkloadSpec
from planners.dtensor.decision import Decision, Rewritten, recorded_in
from planners.dtensor.dispatch.base import Dispatch
from planners.dtensor.dispatch.torch_path import clear_torch_caches
from planners.dtensor.programs.build import build_program
from planners.dtensor.programs.world import OpProgram, playing_one_rank

_WITH_OWNERS = ("optimizer.stepping:on_local_tensors", "optimizer.stepping:with_everything")
"""The ways to step an optimizer that give each of Muon's matrices an owner."""

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

    def under(
        self, dispatch: str = "dispatch.base:Dispatch", stepping: str = ""
    ) -> Prepared[Decision]:
        """Return the program, ready to be called under the dispatch class at `module:class`.

        By default torch dispatches. `stepping` is the `module:function` of a context manager that
        gets the program's optimizer, and is around all calls. Entering `installed` clears all
        caches, then warms them with two calls unless the program is marked as cold.

        Raises NotApplicable if the program has no optimizer for `stepping`.
        """
        around: Callable[[], AbstractContextManager[None]] = nullcontext
        if stepping:
            if self.program.optimizer is None:
                raise NotApplicable("The workload has no optimizer.")
            around = partial(_named(stepping), self.program.optimizer)
        made: Dispatch = _named(dispatch)()
        program = self.program
        rewritten: list[Rewritten] = []
        has_owners = program.is_muon and stepping in _WITH_OWNERS

        @contextmanager
        def installed() -> Iterator[None]:
            with playing_one_rank(self.ranks_per_host), recorded_in(rewritten):
                clear(made)
                try:
                    with made.installed(), around():
                        for _ in range(0 if program.cold else _WARM_UPS):
                            call(program, made, rewritten)
                        yield
                finally:
                    clear(made)

        return Prepared(
            run=lambda: replace(call(program, made, rewritten), has_owners=has_owners),
            installed=installed,
            may_fork=program.may_fork,
        )


def _named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(f"planners.dtensor.{module}"), attribute)


def build(workload: WorkloadSpec, topology: Topology) -> DTensorProblem:
    """Return the problem of a workload; raises UsageError if it or its mesh is impossible."""
    return DTensorProblem(build_program(workload, topology), topology.gpus_in_domain)


def call(program: OpProgram, dispatch: Dispatch, rewritten: list[Rewritten]) -> Decision:
    """Call a program once and return its decision; a cold program first clears all caches."""
    rewritten.clear()
    if program.cold:
        clear(dispatch)
    outputs = tuple(program.step())
    if program.mesh.device_type == "cuda":
        torch.cuda.synchronize()  # a call ends when its kernels have ended
    return Decision(program, outputs, rewritten.copy())


def clear(dispatch: Dispatch) -> None:
    """Clear torch's caches, and the cache and counts of the dispatch."""
    clear_torch_caches()
    dispatch.clear()
