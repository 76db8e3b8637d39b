"""Captures the options that a planner enumerated, in the original order, with their estimates.

The order matters, since torchrec's proposers break ties by it. Up to torchrec 1.8.0, the options of
a constrained table are enumerated in the order of a set of texts, which differs between processes.
A user's own enumerator may use any order.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Annotated, Any, cast

from msgspec import Meta, Struct
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import Perf, ShardingOption, Storage

from harness.contract import ShardbenchError, UsageError
from planners.embedding.capture.mirrors import MOST_RANKS, Estimate, Ranks, Whole, runs_of

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
