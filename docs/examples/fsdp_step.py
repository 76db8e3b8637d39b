"""Split the CPU time of a step under `fully_shard`: python docs/examples/fsdp_step.py ROUNDS

Prints a table for torch and for `accelerate()` with `accelerate_optimizer()`, which take turns: the
whole step, its kernels and collectives, everything else, and each part of the step. A part's time
is the least of all steps. Kernels are timed op by op, less the time of an op that does nothing.
"""

import gc
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._python_dispatch import TorchDispatchMode

from harness.contract import Recorder
from harness.model.ids import ProblemId
from harness.topologies.lookup import find_topology
from planners.dtensor import FAMILY
from planners.dtensor.counting.observer import observe
from planners.dtensor.problem import build
from planners.dtensor.programs import fsdp
from planners.dtensor.programs.world import playing_one_rank

LAYERS = 24
PROBLEM = f"fsdp2-step[layers={LAYERS},impl=fused]/dgx_a100_80gb:8"
VARIANTS = ("upstream", "accelerated")
STEPS = 12
OUTSIDE = ("`propagate`", "`redistribute`", "`other`")


class Ops(TorchDispatchMode):
    """Record the CPU nanoseconds of each op, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.ns: list[int] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an op and record its time."""
        start = time.thread_time_ns()
        made = op(*args, **(kwargs or {}))
        self.ns.append(time.thread_time_ns() - start)
        return made


def kernels_ms(step: Callable[[], object]) -> float:
    """Return the time of the ops in a step; each is the least of several steps."""
    tensor = torch.ones(1)
    runs = []
    for run in (step, lambda: [torch.ops.aten.alias(tensor) for _ in range(100)]):
        ops = [Ops() for _ in range(STEPS)]
        for each in ops:
            with each:
                run()
        runs.append([min(times) for times in zip(*(each.ns for each in ops), strict=True)])
    nothing = sorted(runs[1])[len(runs[1]) // 2]
    return sum(max(0, ns - nothing) for ns in runs[0]) / 1e6


def kernels_of(mesh: DeviceMesh) -> float:
    """Return the milliseconds of kernels and collectives; those of optimizers, on local tensors."""
    model, batch = fsdp.fully_sharded(mesh, LAYERS), torch.ones(2, 4, 64)
    plain = [torch.nn.Parameter(weight.to_local().detach()) for weight in model.parameters()]
    for weight in plain:
        weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.AdamW(plain, fused=True)

    def forward_and_backward() -> None:
        fsdp.backward(fsdp.forward(model, batch))
        model.zero_grad()

    def clip_and_step() -> None:
        torch.nn.utils.clip_grad_norm_(plain, 1.0)
        optimizer.step()

    for step in (forward_and_backward, clip_and_step):
        step()
    return kernels_ms(forward_and_backward) + kernels_ms(clip_and_step)


def main() -> None:
    """Time the variants in turns, and print the table."""
    named = ProblemId.parse(PROBLEM)
    problem = build(named.workload, find_topology(named.topology, named.gpus))
    least = {name: defaultdict[str, float](lambda: float("inf")) for name in VARIANTS}
    gc.disable()
    for _ in range(int(sys.argv[1])):
        for name, parts in least.items():
            prepared = FAMILY.find(name).prepared(problem)
            with prepared.installed():
                for _ in range(STEPS):
                    start = time.thread_time()
                    prepared.run()
                    parts["step"] = min(parts["step"], time.thread_time() - start)
                for _ in range(STEPS):
                    recorder = Recorder()
                    with observe(recorder), recorder.call():
                        prepared.run()
                    for part, seconds in recorder.phases.items():
                        parts[f"`{part}`"] = min(parts[f"`{part}`"], seconds)
            gc.collect()
    with playing_one_rank(problem.ranks_per_host):
        kernels = kernels_of(problem.program.mesh)
    print("| part | torch | accelerated | times as fast |\n| --- | ---: | ---: | ---: |")
    torchs, ours = ({part: 1e3 * s for part, s in least[name].items()} for name in VARIANTS)
    rows = [("step", torchs.pop("step"), ours.pop("step"))]
    rows.append(("kernels and collectives", kernels, kernels))
    rows.append(("everything else", *(step - kernels for step in rows[0][1:])))
    rows += [(part, torchs[part], ours[part]) for part in torchs if part not in OUTSIDE]
    for part, before, after in rows:
        print(f"| {part} | {before:.2f} ms | {after:.2f} ms | {before / after:.2f} |")


if __name__ == "__main__":
    main()
