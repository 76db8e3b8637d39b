"""The options that a live planner had, with their estimates, to a captured file and back.

Up to torchrec 1.8.0 options that are constrained are enumerated in the order of a set of texts,
which differs from process to process, and an enumerator of one's own has an order of its own;
torchrec's proposers break ties by it. A file therefore keeps the order.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import groupby
from typing import Any, cast

from torch import nn
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import Perf, Shard, ShardingOption, Storage
from torchrec.distributed.types import ModuleSharder

from harness.contract import ShardbenchError, UsageError
from planners.embedding.capture.fields import Fields, Malformed

_MOST_OPTIONS = 10_000_000
_MOST_SHARDS = 2**17

Key = tuple[str, str, str]
"""A table's fqn, a sharding type and a compute kernel."""


def options_written(
    options: Sequence[ShardingOption], places: Mapping[tuple[str, str], tuple[int, int]]
) -> dict[str, Any]:
    """Return options and their distinct estimates as plain JSON types.

    An estimate is bytes of HBM, DDR and SSD, then the milliseconds of torchrec's Perf in its order.
    A row of `shards` is how many shards in a row are alike, their rows and columns, and the number
    of their estimate. `places` has the numbers of a table's module and of the table in it, by
    module path and table name.

    Raises:
        ShardbenchError: an option is of a table that is not known, or is without an estimate.
    """
    numbers: dict[tuple[float, ...], int] = {}

    def number(option: ShardingOption, shard: Shard) -> int:
        if shard.storage is None or shard.perf is None:
            raise ShardbenchError(f"An option of table '{option.name}' has no estimate.")
        estimate = (*astuple(shard.storage), *astuple(shard.perf))
        return numbers.setdefault(estimate, len(numbers))

    written = []
    for option in options:
        if (option.path, option.name) not in places:
            raise ShardbenchError(f"Table '{option.name}' has an option, but no sharder shards it.")
        module, table = places[option.path, option.name]
        shards = [(*map(int, shard.size), number(option, shard)) for shard in option.shards]
        written.append(
            {
                "module": module,
                "table": table,
                "sharding_type": option.sharding_type,
                "compute_kernel": option.compute_kernel,
                "shards": [[len(list(run)), *shard] for shard, run in groupby(shards)],
            }
        )
    return {"options": written, "estimates": [list(estimate) for estimate in numbers]}


@dataclass(frozen=True, slots=True)
class CapturedOption:
    """An option of a file; `shards` is as `options_written` writes it."""

    fqn: str
    sharding_type: str
    compute_kernel: str
    shards: list[list[int]]

    @property
    def key(self) -> Key:
        """What it is found by among the options that torchrec enumerates."""
        return self.fqn, self.sharding_type, self.compute_kernel

    def sizes(self) -> list[list[int]]:
        """Return how many shards in a row are of which rows and columns."""
        runs = groupby(self.shards, key=lambda shard: shard[1:3])
        return [[sum(count for count, *_ in run), *size] for size, run in runs]

    def __str__(self) -> str:
        return f"'{self.compute_kernel}', {self.sharding_type}, of table '{self.fqn.lstrip('.')}'"


@dataclass(frozen=True, slots=True)
class CapturedOptions:
    """The options of a file, in the live planner's order.

    Where they are `fed`, the file's estimates stand in for those that are worked out again.
    """

    options: tuple[CapturedOption, ...]
    estimates: tuple[tuple[Storage, Perf], ...]
    fed: bool = False

    def applied(self, options: Sequence[ShardingOption]) -> list[ShardingOption]:
        """Return options that torchrec enumerated as the live planner had them.

        Raises:
            UsageError: one of the file's is not among them, or has other shards.
        """
        waiting: dict[Key, deque[ShardingOption]] = defaultdict(deque)
        for option in options:
            waiting[option.fqn, option.sharding_type, option.compute_kernel].append(option)
        ordered = []
        for captured in self.options:
            if not waiting[captured.key]:
                raise UsageError(
                    f"The live planner had option {captured}, which the installed torchrec does "
                    "not enumerate."
                )
            option = waiting[captured.key].popleft()
            if _sizes_of(option) != captured.sizes():
                raise UsageError(
                    f"The live planner had option {captured} in other shards than the installed "
                    "torchrec makes."
                )
            if self.fed:
                self._feed(option, captured)
            ordered.append(option)
        return ordered

    def _feed(self, option: ShardingOption, captured: CapturedOption) -> None:
        shards = iter(option.shards)
        for count, _, _, estimate in captured.shards:
            for _ in range(count):
                shard = next(shards)
                shard.storage, shard.perf = self.estimates[estimate]

    def compared(self, options: Sequence[ShardingOption]) -> "CapturedOptions":
        """Return these, fed where an estimate of the installed torchrec's is another one.

        Raises:
            UsageError: an option of the file is not among these, or has other shards.
        """
        for captured, option in zip(self.options, self.applied(options), strict=True):
            shards = iter(option.shards)
            for count, _, _, estimate in captured.shards:
                for _ in range(count):
                    shard = next(shards)
                    if (shard.storage, shard.perf) != self.estimates[estimate]:
                        return replace(self, fed=True)
        return self

    def enumerating(self, kind: type[EmbeddingEnumerator]) -> type[EmbeddingEnumerator]:
        """Return a kind of enumerator that enumerates as the live planner had it."""
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


def options_read(said: Fields, fqns: Sequence[Sequence[str]]) -> CapturedOptions:
    """Return the options that a file says; `fqns` has the fqn of each table of each module.

    Raises:
        Malformed: a field is missing or cannot be so.
    """
    estimates = tuple(
        (Storage(*row[:3]), Perf(*row[3:])) for row in said.rows("estimates", wholes=0, numbers=9)
    )
    options = []
    for each in said.each("options", "option", _MOST_OPTIONS):
        tables = fqns[each.whole("module", 0, len(fqns) - 1)]
        shards = each.rows("shards", wholes=4, most=_MOST_SHARDS)
        if not shards or any(
            estimate >= len(estimates) or not 0 < count <= _MOST_SHARDS
            for count, _, _, estimate in shards
        ):
            raise Malformed("an option must have shards with estimates that are there")
        options.append(
            CapturedOption(
                tables[each.whole("table", 0, len(tables) - 1)],
                each.text("sharding_type"),
                each.text("compute_kernel"),
                shards,
            )
        )
    return CapturedOptions(tuple(options), estimates)
