"""Defines, makes and reads the embedding family's files of captured problems."""

from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Self

import msgspec
from msgspec import Meta, Struct
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner

from harness.contract import Names, ShardbenchError, UsageError, read_captured
from planners.embedding.capture.mirrors import (
    CapturedConstraints,
    CapturedTopology,
    captured_constraints,
)
from planners.embedding.capture.modules import (
    CapturedModule,
    CapturedSharder,
    captured_sharder,
)
from planners.embedding.capture.options import CapturedOption, ShardEstimate
from planners.embedding.capture.planner import CapturedPlanner, CapturedReservation, FoundPlan
from planners.embedding.tables.files import MOST_TABLES
from planners.embedding.tables.torchrec_objects import ShardedModule


class CapturedProblem(Struct):
    """A captured file: all inputs of a planner in a user's program, and the plan that it found."""

    topology: CapturedTopology
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
        sizes = [len(module.tables) for module in self.modules]
        if sum(sizes) > MOST_TABLES:
            raise ValueError(f"there must be at most {MOST_TABLES:,} tables")
        for option in self.options or ():
            if option.module >= len(sizes) or option.table >= sizes[option.module]:
                raise ValueError("options must be of modules and tables that are there")
            if any(estimate >= len(self.estimates) for *_, estimate in option.shards):
                raise ValueError("options must have shards with estimates that are there")

    @classmethod
    def of(
        cls, planner: EmbeddingShardingPlanner, modules: Sequence[ShardedModule], names: Names
    ) -> Self:
        """Capture the inputs of a planner, without options, estimates and a plan.

        Raises ShardbenchError if there is no table, or if a module, a table, a sharder or a
        constraint cannot be captured.
        """
        if not modules:
            raise ShardbenchError("there was no table to place.")
        configs = [config for module in modules for config, _ in module.tables]
        tables = names.written(config.name for config in configs)
        constraints = {
            name: constraint
            for name, constraint in (planner._constraints or {}).items()
            if name in tables
        }
        readers = (*configs, *constraints.values())
        features = names.written(name for it in readers for name in it.feature_names or ())
        parts = names.written(part for module in modules for part in module.path.split("."))
        parts[""] = ""  # the path of a model that is a collection itself
        topology = planner._topology
        sharders = {module.kind: module.sharder for module in modules}
        return cls(
            topology=CapturedTopology.of(topology),
            batch_size=planner._batch_size,
            reservation=CapturedReservation.of(planner._storage_reservation, names.hashed),
            sharders=[
                captured_sharder(sharder, kind, topology.compute_device)
                for kind, sharder in sharders.items()
            ],
            modules=[
                CapturedModule.of(
                    module,
                    ".".join(parts[part] for part in module.path.split(".")),
                    tables,
                    features,
                )
                for module in modules
            ],
            constraints={
                tables[name]: captured_constraints(constraint, features)
                for name, constraint in constraints.items()
            },
            planner=CapturedPlanner.of(planner, names.hashed),
            options=None,
            estimates=[],
            found=None,
        )

    @property
    def decision(self) -> str:
        """The fingerprint of the live planner's plan, or 'none, ' and the class of its error."""
        if self.found is None:
            return "not known"
        return self.found.fingerprint or f"none, {self.found.error}"

    def fqn(self, module: int, table: int) -> str:
        """Return torchrec's name of a table, by the indices of its module and of it in there."""
        return f"{self.modules[module].path}.{self.modules[module].tables[table].name}"


def read_problem(path: str | Path) -> CapturedProblem:
    """Read a captured file; raises UsageError if it is damaged or belongs to another family."""
    try:
        return msgspec.convert(read_captured(path, "embedding"), CapturedProblem)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path} is damaged: {error}.") from None


def plain(value: object) -> object:
    """Convert a number or text of another class, such as NumPy's, to a built-in type."""
    if isinstance(value, Integral | Real):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"a {type(value).__name__} cannot be stored")
