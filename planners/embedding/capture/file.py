"""Defines and reads the embedding family's files of captured problems."""

from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct
from torchrec.distributed.planner.types import Perf, Storage

from harness.contract import Topology as Machines, UsageError, read_captured
from planners.embedding.capture.mirrors import CapturedConstraints, CapturedTopology, check_devices
from planners.embedding.capture.modules import CapturedModule, CapturedSharder
from planners.embedding.capture.options import CapturedOption, CapturedOptions, ShardEstimate
from planners.embedding.capture.planner import CapturedPlanner, CapturedReservation, FoundPlan
from planners.embedding.tables.files import MOST_TABLES

FAMILY = "embedding"
T = TypeVar("T")


class _CapturedMachines(Struct):
    """The part of a captured file that describes the machines."""

    topology: CapturedTopology


class CapturedProblem(_CapturedMachines, kw_only=True):
    """A captured file: all inputs of a planner in a user's program, and the plan that it found."""

    batch_size: Annotated[int, Meta(ge=1, le=2**31)]
    reservation: CapturedReservation
    sharders: list[CapturedSharder]
    modules: Annotated[list[CapturedModule], Meta(min_length=1, max_length=MOST_TABLES)]
    constraints: dict[str, CapturedConstraints]
    planner: CapturedPlanner
    options: Annotated[list[CapturedOption], Meta(max_length=10_000_000)] | None
    estimates: list[ShardEstimate]
    found: FoundPlan | None

    def __post_init__(self) -> None:
        if self.reservation.left is not None:
            check_devices(self.reservation.left, self.topology.world_size)
        if sum(len(module.tables) for module in self.modules) > MOST_TABLES:
            raise ValueError(f"there must be at most {MOST_TABLES:,} tables")
        if len({module.path for module in self.modules}) < len(self.modules):
            raise ValueError("modules must each have a path of their own")
        if {sharder.module for sharder in self.sharders} != {
            module.kind for module in self.modules
        }:
            raise ValueError("there must be a sharder for each kind of module")
        for option in self.options or ():
            if option.module >= len(self.modules) or option.table >= len(
                self.modules[option.module].tables
            ):
                raise ValueError("options must be of modules and tables that are there")
            if any(estimate >= len(self.estimates) for *_, estimate in option.shards):
                raise ValueError("options must have shards with estimates that are there")

    def replayed_options(self) -> CapturedOptions | None:
        """Return the captured options with their estimates, or None if none were enumerated."""
        if self.options is None:
            return None
        fqns = [
            [f"{module.path}.{table.name}" for table in module.tables] for module in self.modules
        ]
        return CapturedOptions(
            tuple((fqns[option.module][option.table], option) for option in self.options),
            tuple((Storage(*row[:3]), Perf(*row[3:])) for row in self.estimates),
        )


def read_problem(path: str | Path) -> CapturedProblem:
    """Read a captured file; raises UsageError if it is damaged or belongs to another family."""
    return _read(path, CapturedProblem)


def read_machines(path: str | Path) -> Machines:
    """Return the machines of a captured file; raises UsageError as `read_problem` does."""
    return _read(path, _CapturedMachines).topology.machines()


def _read(path: str | Path, kind: type[T]) -> T:
    try:
        return msgspec.convert(read_captured(path, FAMILY), kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path} is damaged: {error}.") from None
