"""What a dtensor workload holds: the ops of one call, by how their operands are placed."""

from collections import Counter
from typing import Any, NamedTuple

from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness.contract import Column, Inventory, Topology, UsageError, WorkloadSpec
from planners.dtensor.problem import build
from planners.dtensor.programs.world import playing_one_rank

_COLUMNS = (
    Column("op"),
    Column("placements"),
    Column("shapes", unit="elements"),
    Column("elements", unit="in all operands", kind="count", scale="log", is_shown=False),
    Column("times", kind="count", scale="log"),
)


class _Use(NamedTuple):
    op: str
    placements: str
    shapes: str
    elements: int


class _Ops(TorchDispatchMode):
    """Counts ops on DTensors as they are called, before DTensor takes them apart."""

    def __init__(self) -> None:
        super().__init__()
        self.uses: Counter[_Use] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        operands = [each for each in tree_leaves((args, kwargs)) if isinstance(each, DTensor)]
        if operands:
            self.uses[_use(func, operands)] += 1
        return func(*args, **(kwargs or {}))


def _use(func: Any, operands: list[DTensor]) -> _Use:
    return _Use(
        str(func).removeprefix("aten."),
        ", ".join(_placed(each) for each in operands),
        ", ".join("x".join(map(str, each.shape)) or "1" for each in operands),
        sum(each.numel() for each in operands),
    )


def _placed(tensor: DTensor) -> str:
    return "".join(str(placement) for placement in tensor.placements)


def inventory(workload: WorkloadSpec, topology: Topology | None) -> Inventory:
    """Return the ops of one call of a program, those with equal operands counted as one.

    Raises:
        UsageError: it is unknown or malformed, or needs a topology for its mesh.
    """
    if topology is None:
        raise UsageError(
            f"The mesh of workload '{workload}' depends on the machines; name them with --topology "
            "and --gpus."
        )
    problem = build(workload, topology)
    with playing_one_rank(problem.ranks_per_host), _Ops() as seen:
        problem.program.step()
    mesh = " x ".join(map(str, problem.program.mesh.shape))
    kinds = len({use.op for use in seen.uses})
    return Inventory(
        title=f"Ops of {workload}",
        part="op",
        columns=_COLUMNS,
        rows=tuple((*use, times) for use, times in seen.uses.items()),
        summary=f"{seen.uses.total():,} ops a call on a mesh of {mesh}, {kinds:,} different ones, "
        f"{len(seen.uses):,} with their placements and shapes",
        sort="times",
    )
