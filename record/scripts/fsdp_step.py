"""Split the CPU time of a step under `fully_shard`: python record/scripts/fsdp_step.py ROUNDS

Prints a table for torch and for `accelerate()` with `accelerate_optimizer()`, which take turns: the
whole step, its kernels and collectives, everything else, and each part of the step. A part's time
is the least of all steps. Kernels are timed op by op, less the time of an op that does nothing.
"""

import gc
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from math import inf
from statistics import median
from typing import Any

import torch
from common import build_problem, print_table, timed
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._python_dispatch import TorchDispatchMode

from harness.contract import Recorder
from planners.dtensor import FAMILY
from planners.dtensor.programs import training
from planners.dtensor.programs.world import playing_one_rank

LAYERS = 24
PROBLEM = f"fsdp2-step[layers={LAYERS},impl=fused]/dgx_a100_80gb:8"
STEPS = 12
OUTSIDE = ("propagate", "redistribute", "other")


class OpTimes(TorchDispatchMode):
    """Record the CPU seconds of each op, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an op and record its time."""
        result, seconds = timed(lambda: op(*args, **(kwargs or {})), time.thread_time)
        self.seconds.append(seconds)
        return result


def seconds_by_op(step: Callable[[], object]) -> list[float]:
    """Return the seconds of each op in a step; each is the least of several steps."""
    runs = []
    for _ in range(STEPS):
        with OpTimes() as times:
            step()
        runs.append(times.seconds)
    return [min(seconds) for seconds in zip(*runs, strict=True)]


def kernels_ms(mesh: DeviceMesh) -> float:
    """Return the time of a step's kernels and collectives; optimizers work on local tensors."""
    model, batch = training.fully_sharded(mesh, LAYERS), torch.ones(2, 4, 64)
    plain = [torch.nn.Parameter(weight.to_local().detach()) for weight in model.parameters()]
    for weight in plain:
        weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.AdamW(plain, fused=True)

    def forward_and_backward() -> None:
        training.backward(training.forward(model, batch))
        model.zero_grad()

    def clip_and_step() -> None:
        torch.nn.utils.clip_grad_norm_(plain, 1.0)
        optimizer.step()

    def nothing() -> None:
        for _ in range(100):
            torch.ops.aten.alias(batch)

    overhead = median(seconds_by_op(nothing))
    total = 0.0
    for step in (forward_and_backward, clip_and_step):
        step()  # makes the optimizer's state
        total += sum(max(0.0, seconds - overhead) for seconds in seconds_by_op(step))
    return 1e3 * total


def main() -> None:
    """Time the variants in turns, and print the table."""
    problem = build_problem("dtensor", PROBLEM)
    times = {name: defaultdict[str, float](lambda: inf) for name in ("upstream", "accelerated")}
    gc.disable()
    for _ in range(int(sys.argv[1])):
        for name, least in times.items():
            prepared = FAMILY.find(name).prepared(problem)
            with prepared.installed():
                for _ in range(STEPS):
                    _, seconds = timed(prepared.run, time.thread_time)
                    least["step"] = min(least["step"], 1e3 * seconds)
                for _ in range(STEPS):
                    recorder = Recorder()
                    with FAMILY.work.observe(recorder), recorder.call():
                        prepared.run()
                    for part, seconds in recorder.phases.items():
                        least[part] = min(least[part], 1e3 * seconds)
            gc.collect()
    with playing_one_rank(problem.ranks_per_host):
        kernels = kernels_ms(problem.program.mesh)
    upstream, accelerated = times.values()
    before, after = upstream.pop("step"), accelerated["step"]
    rows = [
        ("step", before, after),
        ("kernels and collectives", kernels, kernels),
        ("everything else", before - kernels, after - kernels),
        *((f"`{p}`", ms, accelerated[p]) for p, ms in upstream.items() if p not in OUTSIDE),
    ]
    print_table(
        ("part", "torch", "accelerated", "times as fast"),
        ((part, f"{a:.2f} ms", f"{b:.2f} ms", f"{a / b:.2f}") for part, a, b in rows),
    )


if __name__ == "__main__":
    main()
