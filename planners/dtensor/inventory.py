"""List the ops of one call of a dtensor workload, by the placements of their operands."""

from collections import Counter
from typing import Any

from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness.contract import Column, Inventory, Topology, WorkloadSpec, require_topology
from planners.dtensor.problem import build
from planners.dtensor.programs.world import playing_one_rank

_COLUMNS = (
    Column("op"),
    Column("placements"),
    Column("shapes", unit="elements"),
    Column("elements", unit="in all operands", kind="count", scale="log", is_shown=False),
    Column("times", kind="count", scale="log"),
)


class _OpUses(TorchDispatchMode):
    """Counts ops on DTensors as they are called, before DTensor decomposes them."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: Counter[tuple[str, str, str, int]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        operands = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, DTensor)]
        if operands:
            row = (
                str(func).removeprefix("aten."),
                ", ".join("".join(map(str, tensor.placements)) for tensor in operands),
                ", ".join("x".join(map(str, tensor.shape)) or "1" for tensor in operands),
                sum(tensor.numel() for tensor in operands),
            )
            self.rows[row] += 1
        return func(*args, **(kwargs or {}))


def inventory(workload: WorkloadSpec, topology: Topology | None) -> Inventory:
    """Return the ops of one call of a workload, with one row for all equal uses of an op.

    Raises UsageError if the workload is malformed or the topology is missing.
    """
    problem = build(workload, require_topology(workload, topology))
    with playing_one_rank(problem.ranks_per_host), _OpUses() as uses:
        problem.program.step()
    mesh = " x ".join(map(str, problem.program.mesh.shape))
    kinds = len({op for op, *_ in uses.rows})
    return Inventory(
        title=f"Ops of {workload}",
        part="op",
        columns=_COLUMNS,
        rows=tuple((*row, times) for row, times in uses.rows.items()),
        summary=f"{uses.rows.total():,} ops a call on a mesh of {mesh}, {kinds:,} different ones, "
        f"{len(uses.rows):,} with their placements and shapes",
        sort="times",
    )
