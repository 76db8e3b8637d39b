"""How much faster handlers can make a step: python docs/examples/dispatch_limit.py PROBLEM TURNS

Times the step of a dtensor problem, as mlp/dgx_h100:8, by torch, by `interned`, and by handlers
that do nothing, in turns: each of these returns what its op made in an earlier step. An optimizer's
step is also taken on the local tensors, without DTensors.
"""

import gc
import sys
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any
from unittest import mock

from torch.distributed.tensor import DTensor

from harness.model.ids import ProblemId
from harness.topologies.lookup import find_topology
from planners.dtensor.cache.interned import InternedDispatch
from planners.dtensor.cache.recipes import make_dtensor
from planners.dtensor.dispatch.base import Dispatch
from planners.dtensor.problem import build, clear
from planners.dtensor.programs import training
from planners.dtensor.programs.world import playing_one_rank

STEPS = 40


def _again(made: Any, is_in_place: bool) -> Callable[[Any], Any]:
    """Return what gives an op's result once more, from its arguments."""
    if is_in_place:
        return lambda args: args[0]
    if not isinstance(made, DTensor):
        return lambda args: made
    local, spec = made._local_tensor, made._spec
    return lambda args: make_dtensor(DTensor, local, spec, requires_grad=False)


class Nothing(InternedDispatch):
    """Handlers that do nothing, once a step was recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Callable[[Any], Any]] = []
        self.known: Any = None

    def _handler(self, op: Any) -> Any:
        real = super()._handler(op)

        def handler(op: Any, args: Any, kwargs: Any) -> Any:
            if self.known is not None:
                return next(self.known)(args)
            made = real(op, args, kwargs)
            # The result itself is not kept: autograd takes a gradient that nobody else has.
            self.made.append(_again(made, is_in_place=made is args[0]))
            return made

        return handler


def step_us(dispatch: Dispatch, problem: Any) -> float:
    """Return the CPU time of a step, the least quarter of many."""
    step, times = problem.program.step, []
    with playing_one_rank(problem.ranks_per_host):
        clear(dispatch)
        with dispatch.installed():
            for _ in range(5):
                if isinstance(dispatch, Nothing):
                    dispatch.made.clear()
                step()
            if isinstance(dispatch, Nothing):
                dispatch.known = cycle(dispatch.made)
            for _ in range(STEPS):
                start = time.thread_time_ns()
                step()
                times.append((time.thread_time_ns() - start) / 1000)
    return sorted(times)[STEPS // 4]


def main() -> None:
    """Time the three in turns and print the least of each."""
    named = ProblemId.parse(sys.argv[1])
    topology = find_topology(named.topology, named.gpus)
    problem = build(named.workload, topology)
    kinds = {
        "torch": (Dispatch, problem),
        "interned": (InternedDispatch, problem),
        "nothing": (Nothing, problem),
    }
    if named.workload.name == "optimizer":
        with mock.patch.object(training, "placed", lambda mesh, local, *_: local):
            plain = build(named.workload, topology)
        kinds["plain"] = (Dispatch, plain)
    least = dict.fromkeys(kinds, float("inf"))
    gc.disable()
    for _ in range(int(sys.argv[2])):
        for name, (kind, timed) in kinds.items():
            least[name] = min(least[name], step_us(kind(), timed))
        gc.collect()
    for name, us in least.items():
        print(f"{name:10}{us:10,.0f} us a step, {least['torch'] / us:.2f} times as fast as torch")


if __name__ == "__main__":
    main()
