"""Captures the options that a planner enumerated, in the original order, with their estimates.

The order matters, since torchrec's proposers break ties by it. Up to torchrec 1.8.0, the options of
a constrained table are enumerated in the order of a set of texts, which differs between processes.
A user's own enumerator may use any order.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import groupby
from typing import Annotated, cast

from msgspec import Meta, Struct
from torch import nn
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import Perf, Shard, ShardingOption, Storage
from torchrec.distributed.types import ModuleSharder

from harness.contract import ShardbenchError, UsageError
from planners.embedding.capture.mirrors import Estimate, Ranks, Whole

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
    shards: Annotated[list[tuple[Ranks, Whole, Whole, Whole]], Meta(min_length=1, max_length=2**17)]

    def sizes(self) -> list[list[int]]:
        """Return runs of shards of equal size, as [count, rows, columns]."""
        runs = groupby(self.shards, key=lambda shard: shard[1:3])
        return [[sum(count for count, *_ in run), *size] for size, run in runs]

    def estimates(self) -> Iterator[int]:
        """Yield the index of each shard's estimate."""
        for count, _, _, estimate in self.shards:
            for _ in range(count):
                yield estimate


def captured_options(
    options: Sequence[ShardingOption], places: Mapping[tuple[str, str], tuple[int, int]]
) -> tuple[list[CapturedOption], list[ShardEstimate]]:
    """Return the captured options and their distinct estimates.

    `places` maps (module path, table name) to the indices of the module and of the table in it.
    Raises ShardbenchError for an option without an estimate or of an unknown table.
    """
    numbers: dict[tuple[float, ...], int] = {}

    def number(option: ShardingOption, shard: Shard) -> int:
        if shard.storage is None or shard.perf is None:
            raise ShardbenchError(f"An option of table '{option.name}' has no estimate.")
        estimate = (*astuple(shard.storage), *astuple(shard.perf))
        return numbers.setdefault(estimate, len(numbers))

    captured = []
    for option in options:
        if (option.path, option.name) not in places:
            raise ShardbenchError(f"Table '{option.name}' has an option, but no sharder shards it.")
        shards = (
            (int(shard.size[0]), int(shard.size[1]), number(option, shard))
            for shard in option.shards
        )
        captured.append(
            CapturedOption(
                *places[option.path, option.name],
                option.sharding_type,
                option.compute_kernel,
                [(len(list(run)), *shard) for shard, run in groupby(shards)],
            )
        )
    return captured, [list(estimate) for estimate in numbers]


@dataclass(frozen=True, slots=True)
class CapturedOptions:
    """The options of a captured file, as pairs of a table's fqn and an option, in their order."""

    options: tuple[tuple[str, CapturedOption], ...]
    estimates: tuple[tuple[Storage, Perf], ...]
    fed: bool = False  # use the file's estimates, not those of the installed torchrec

    def applied(self, options: Sequence[ShardingOption]) -> list[ShardingOption]:
        """Return the captured ones of the enumerated `options`, in the captured order.

        With `fed` they get the captured estimates. Raises UsageError if an option is missing or has
        other shards.
        """
        waiting: dict[tuple[str, str, str], deque[ShardingOption]] = defaultdict(deque)
        for option in options:
            waiting[option.fqn, option.sharding_type, option.compute_kernel].append(option)
        ordered = []
        for fqn, captured in self.options:
            name = (
                f"The live planner had option '{captured.compute_kernel}', "
                f"{captured.sharding_type}, of table '{fqn.lstrip('.')}'"
            )
            same = waiting[fqn, captured.sharding_type, captured.compute_kernel]
            if not same:
                raise UsageError(f"{name}, which the installed torchrec does not enumerate.")
            option = same.popleft()
            if _sizes_of(option) != captured.sizes():
                raise UsageError(f"{name} in other shards than the installed torchrec makes.")
            if self.fed:
                for shard, estimate in zip(option.shards, captured.estimates(), strict=True):
                    shard.storage, shard.perf = self.estimates[estimate]
            ordered.append(option)
        return ordered

    def compared(self, options: Sequence[ShardingOption]) -> "CapturedOptions":
        """Return a copy; `fed` is True if the installed torchrec estimates a shard differently."""
        fed = any(
            (shard.storage, shard.perf) != self.estimates[estimate]
            for (_, captured), option in zip(self.options, self.applied(options), strict=True)
            for shard, estimate in zip(option.shards, captured.estimates(), strict=True)
        )
        return replace(self, fed=fed)

    def enumerating(self, kind: type[EmbeddingEnumerator]) -> type[EmbeddingEnumerator]:
        """Return a subclass of the enumerator class `kind` that returns the captured options."""
        captured = self

        class AsCaptured(kind):
            def enumerate(
                self, module: nn.Module, sharders: list[ModuleSharder[nn.Module]]
            ) -> list[ShardingOption]:
                return captured.applied(super().enumerate(module, sharders))

        return cast(type[EmbeddingEnumerator], AsCaptured)


def _sizes_of(option: ShardingOption) -> list[list[int]]:
    sizes = ([int(length) for length in shard.size] for shard in option.shards)
    return [[len(list(run)), *size] for size, run in groupby(sizes)]
