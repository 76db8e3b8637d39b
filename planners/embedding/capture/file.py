"""Defines, makes and reads the embedding family's files of captured problems.

The order of options matters, since torchrec's proposers break ties by it. Up to torchrec 1.8.0, the
options of a constrained table are enumerated in the order of a set of texts, which differs between
processes. A user's own enumerator may use any order.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Self, cast

import msgspec
from msgspec import Meta, Struct
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import Perf, ShardingOption, Storage

from harness.contract import Names, ShardbenchError, UsageError, read_captured
from planners.embedding.capture.mirrors import (
    MOST_RANKS,
    CapturedConstraints,
    CapturedTopology,
    Estimate,
    Ranks,
    Whole,
    captured_constraints,
    runs_of,
)
from planners.embedding.capture.modules import (
    CapturedModule,
    CapturedSharder,
    captured_sharder,
)
from planners.embedding.capture.planner import CapturedPlanner, CapturedReservation, FoundPlan
from planners.embedding.tables.files import MOST_TABLES
from planners.embedding.tables.torchrec_objects import ShardedModule

ShardEstimate = Annotated[list[Estimate], Meta(min_length=9, max_length=9)]
"""Bytes of HBM, DDR and SSD, then the milliseconds of torchrec's Perf in its order."""


class CapturedOption(Struct, frozen=True):
    """A captured sharding option; `module` is a module's index, `table` a table's index in it.

    `shards` has runs of equal shards as (count, rows, columns, index of their estimate).
    """

    module: Whole
    table: Whole
    sharding_type: str
    compute_kernel: str
    shards: Annotated[
        list[tuple[Ranks, Whole, Whole, Whole]], Meta(min_length=1, max_length=MOST_RANKS)
    ]

    def __post_init__(self) -> None:
        if sum(count for count, *_ in self.shards) > MOST_RANKS:
            raise ValueError(f"an option must have at most {MOST_RANKS} shards")

    def each_shard(self) -> list[tuple[int, ...]]:
        """Return the rows, the columns and the index of the estimate of each shard."""
        return [(*size, index) for count, *size, index in self.shards for _ in range(count)]


def captured_options(
    options: Iterable[ShardingOption], places: Mapping[tuple[str, str], tuple[int, int]]
) -> tuple[list[CapturedOption], list[ShardEstimate]]:
    """Return the captured options and their distinct estimates.

    `places` maps (module path, table name) to the indices of the module and of the table in it.
    Raises ShardbenchError for an option without an estimate or of an unknown table.
    """
    numbers: dict[tuple[float, ...], int] = {}
    captured = []
    for option in options:
        if (option.path, option.name) not in places:
            raise ShardbenchError(f"Table '{option.name}' has an option, but no sharder shards it.")
        shards = []
        for shard in option.shards:
            if shard.storage is None or shard.perf is None:
                raise ShardbenchError(f"An option of table '{option.name}' has no estimate.")
            estimate = (*astuple(shard.storage), *astuple(shard.perf))
            shards.append((*map(int, shard.size), numbers.setdefault(estimate, len(numbers))))
        place = places[option.path, option.name]
        kinds = option.sharding_type, option.compute_kernel
        captured.append(CapturedOption(*place, *kinds, runs_of(shards)))
    return captured, [list(estimate) for estimate in numbers]


@dataclass(frozen=True, slots=True)
class CapturedOptions:
    """The options of a captured file, as pairs of a table's fqn and an option, in their order."""

    options: Sequence[tuple[str, CapturedOption]]
    estimates: Sequence[tuple[Storage, Perf]]
    fed: bool = False  # use the file's estimates, not those of the installed torchrec

    def applied(self, options: Iterable[ShardingOption]) -> list[ShardingOption]:
        """Return the captured ones of the enumerated `options`, in the captured order.

        With `fed` they get the captured estimates. Raises UsageError if an option is missing.
        """
        waiting = defaultdict[tuple[Any, ...], list[ShardingOption]](list)
        for option in options:
            sizes = [tuple(shard.size) for shard in option.shards]
            waiting[_key(option.fqn, option, sizes)].append(option)
        ordered = []
        for fqn, captured in self.options:
            shards = captured.each_shard()
            same = waiting[_key(fqn, captured, [tuple(size) for *size, _ in shards])]
            if not same:
                rows, columns, _ = shards[0]
                raise UsageError(
                    f"The live planner had option '{captured.compute_kernel}', "
                    f"{captured.sharding_type}, of table '{fqn.lstrip('.')}' in {len(shards)} "
                    f"shards, the first with {rows} rows and {columns} columns, which the "
                    "installed torchrec does not enumerate."
                )
            option = same.pop(0)
            if self.fed:
                for shard, (*_, estimate) in zip(option.shards, shards, strict=True):
                    shard.storage, shard.perf = self.estimates[estimate]
            ordered.append(option)
        return ordered

    def compared(self, options: Iterable[ShardingOption]) -> "CapturedOptions":
        """Return a copy; `fed` is True if the installed torchrec estimates a shard differently."""
        fed = any(
            (shard.storage, shard.perf) != self.estimates[estimate]
            for (_, captured), option in zip(self.options, self.applied(options), strict=True)
            for shard, (*_, estimate) in zip(option.shards, captured.each_shard(), strict=True)
        )
        return replace(self, fed=fed)

    def enumerating(self, kind: type[EmbeddingEnumerator]) -> type[EmbeddingEnumerator]:
        """Return a subclass of the enumerator class `kind` that returns the captured options."""
        captured = self

        class AsCaptured(kind):
            def enumerate(self, *args: Any, **kwargs: Any) -> list[ShardingOption]:
                return captured.applied(super().enumerate(*args, **kwargs))

        return cast(type[EmbeddingEnumerator], AsCaptured)


def _key(
    fqn: str, option: ShardingOption | CapturedOption, sizes: Iterable[tuple[Any, ...]]
) -> tuple[Any, ...]:
    """Return what identifies an option: its table, sharding type, kernel and runs of sizes."""
    return (fqn, option.sharding_type, option.compute_kernel, tuple(runs_of(sizes)))


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
