"""Options of torchrec that are cheap to make and to copy: shards are created when first read."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from torchrec.distributed.planner.types import Perf, Shard, ShardingOption, Storage

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.object_]  # Python's int and float, as torchrec's formulas return them

_UNMADE = "_unmade_shards"


class ShardLayout:
    """How a table is cut into shards: the distinct `sizes`, and each shard's index in `sizes`.

    `which` has these indices, `table` the table's shape; `cut` returns torchrec's lists of sizes
    and offsets. `runs`, if known, has the distinct sizes in order and the number of shards of each.
    """

    __slots__ = ("cut", "sizes", "table", "which")

    def __init__(
        self,
        table: tuple[int, int],
        cut: Callable[[], tuple[list[list[int]], list[list[int]]]],
        runs: dict[tuple[int, ...], int] | None = None,
    ) -> None:
        self.table = table
        self.cut = cut
        if runs is not None:
            self.sizes = list(runs)
            self.which = _repeated(tuple(runs.values()))
            return
        sizes = [*map(tuple, cut()[0])]
        numbers = {size: number for number, size in enumerate(dict.fromkeys(sizes))}
        self.which = np.array([*map(numbers.__getitem__, sizes)], np.int64)
        self.sizes = list(numbers)

    def shards(self) -> list[Shard]:
        """Return new shards without estimates."""
        return [Shard(size, offset) for size, offset in zip(*self.cut(), strict=True)]


@lru_cache(maxsize=4096)  # many tables on thousands of ranks share few arrays
def _repeated(counts: tuple[int, ...]) -> Ints:
    return np.repeat(np.arange(len(counts)), counts)


class Estimates:
    """TorchRec's estimates of many shards: an array for each attribute of Storage and Perf."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._columns: tuple[dict[str, Numbers], dict[str, Numbers]] = {}, {}

    def put(self, numbers: Any, shard: Shard) -> None:
        """Store a shard's estimates under its number, or lanes of estimates under many numbers."""
        for columns, record in zip(self._columns, (shard.storage, shard.perf), strict=True):
            for attribute, value in vars(record).items():
                if attribute not in columns:
                    columns[attribute] = np.zeros(self._count, object)
                columns[attribute][numbers] = value

    def get(self, number: Any) -> tuple[Storage, Perf]:
        """Return the estimates of one shard number, or estimates of arrays for several numbers."""
        storage, perf = (
            _record(kind, {name: column[number] for name, column in columns.items()})
            for kind, columns in zip((Storage, Perf), self._columns, strict=True)
        )
        return storage, perf


def _record(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """Create a plain object with these attributes; this is faster than copy.copy."""
    record = object.__new__(kind)
    vars(record).update(values)
    return record


@dataclass(frozen=True)
class UnmadeShards:
    """An option's shards before they are created: a layout, and estimates from `first` on."""

    layout: ShardLayout
    estimates: Estimates
    first: int

    def make(self) -> list[Shard]:
        """Create the shards; shards of equal size share their estimate objects."""
        numbers = range(self.first, self.first + len(self.layout.sizes))
        estimated = [self.estimates.get(number) for number in numbers]
        which = self.layout.which.tolist()
        sizes, offsets = self.layout.cut()
        if [*map(tuple, sizes)] != [self.layout.sizes[number] for number in which]:
            raise ValueError("torchrec cuts a table otherwise than expected")
        return [
            Shard(size, offset, *estimated[number])
            for size, offset, number in zip(sizes, offsets, which, strict=True)
        ]


class SharedOption(ShardingOption):
    """An option that is cheap to copy: `deepcopy` copies its shards and shares everything else."""

    def __getattr__(self, name: str) -> Any:
        unmade = self.__dict__.get(_UNMADE)
        if name != "shards" or unmade is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name}")
        shards = self.__dict__.setdefault("shards", unmade.make())
        self.__dict__.pop(_UNMADE, None)  # the caller may modify the shards
        return shards

    def __getstate__(self) -> dict[str, Any]:
        self.shards  # noqa: B018  # creates the shards
        return self.__dict__

    def __deepcopy__(self, memo: dict[int, Any] | None) -> ShardingOption:
        if unmade_shards(self) is not None:
            copied: ShardingOption = _record(type(self), vars(self))
            return copied
        shards = [Shard(s.size, s.offset, s.storage, s.perf, s.rank) for s in self.shards]
        return with_shards(self, shards, type(self))


class PlannedOption(ShardingOption):
    """An option with a fast hash and deepcopy; the copy is a ShardingOption that shares nothing."""

    __hash__ = object.__hash__

    def __deepcopy__(self, memo: dict[int, Any] | None) -> ShardingOption:
        shards = [
            Shard(
                [*s.size],
                [*s.offset],
                _record(type(s.storage), vars(s.storage)),
                _record(type(s.perf), vars(s.perf)),
                s.rank,
            )
            for s in self.shards
        ]
        copied = with_shards(self, shards)
        for name, value in vars(self).items():
            if name not in ("shards", "_tensor", "_module"):
                setattr(copied, name, copy.deepcopy(value, memo))
        return copied


def copy_without_ranks(
    option: ShardingOption, kind: type[ShardingOption] = ShardingOption
) -> ShardingOption:
    """Return a copy of class `kind` whose shards share sizes and estimates, but have no rank.

    A user's own class copies itself.
    """
    if type(option) not in (ShardingOption, SharedOption, PlannedOption):
        return copy.deepcopy(option)
    shards = [Shard(s.size, s.offset, s.storage, s.perf) for s in option.shards]
    return with_shards(option, shards, kind)


def with_shards(
    option: ShardingOption, shards: list[Shard], kind: type[ShardingOption] = ShardingOption
) -> ShardingOption:
    """Return a shallow copy of an option, of class `kind`, with these shards."""
    copied: ShardingOption = _record(kind, vars(option))
    vars(copied).pop(_UNMADE, None)
    copied.shards = shards
    return copied


def leave_unmade(option: ShardingOption, shards: UnmadeShards) -> None:
    """Have a SharedOption create these shards when its `shards` are first read."""
    vars(option).pop("shards", None)
    vars(option)[_UNMADE] = shards


def unmade_shards(option: ShardingOption) -> UnmadeShards | None:
    """Return an option's UnmadeShards, or None if its shards exist already."""
    unmade: UnmadeShards | None = vars(option).get(_UNMADE)
    return unmade
