"""Estimates many shards per call of torchrec's own estimators, by passing arrays for numbers."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import is_dataclass
from functools import cache, partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from torchrec.distributed.planner.types import ParameterConstraints, Shard, ShardingOption
from typing_extensions import override

from planners.embedding.search.options import (
    Estimates,
    Ints,
    ShardLayout,
    UnmadeShards,
    leave_unmade,
    with_shards,
)

Ask = Callable[[list[ShardingOption]], None]
"""Has torchrec's estimators fill in the estimates of the shards of some options."""

Constraints = Sequence[dict[str, ParameterConstraints] | None]
"""The constraints of each estimator, by table."""

_FEW = 4  # with fewer shards than this, lanes save no time

# Up to this number of features, `sum` gives equal results for floats and for lanes. Since Python
# 3.12 it compensates for the rounding of floats only, which can change a sum of three.
_ADDED_ALIKE = 2 if sum([0.1] * 10) == 1 else math.inf

# Attributes that may differ between lanes, or that no estimate depends on. Options that share lanes
# are equal in all other attributes. Estimators use the name only to look up constraints.
_OF_TABLES = {
    "name",
    "_tensor",
    "shards",
    "input_lengths",
    "feature_names",
    "dependency",
    "partition_by",
}
_OF_CONSTRAINTS = {
    "sharding_types",
    "compute_kernels",
    "min_partition",
    "pooling_factors",
    "feature_names",
}


class Diverged(Exception):
    """A condition in a formula is true in some lanes and false in others; `true` is the mask."""

    def __init__(self, true: npt.NDArray[np.bool_]) -> None:
        super().__init__("The lanes have to go different ways.")
        self.true = true


class NeedsNumbers(Exception):
    """A formula converts lanes to a single number, so its shards are estimated one by one."""


class Lanes(np.ndarray[Any, np.dtype[Any]]):
    """An array of Python numbers that takes the place of one number in a formula.

    Each element (lane) gets the same result, to the last bit, as the formula with that number
    alone, in exact integers and in floats. Raises Diverged if lanes would take different branches,
    and NeedsNumbers if they are converted to one number.
    """

    @classmethod
    def of(cls, numbers: Iterable[Any]) -> Self:
        """Create lanes from numbers, one lane per number."""
        listed = list(numbers)
        lanes = np.empty(len(listed), object).view(cls)
        lanes[:] = listed
        return lanes

    @override
    def __int__(self) -> int:
        raise NeedsNumbers

    __index__ = __int__

    @override
    def __bool__(self) -> bool:
        true = np.asarray(self, dtype=bool)
        if true.all():
            return True
        if not true.any():
            return False
        raise Diverged(true)

    def __ceil__(self) -> Any:
        return np.frompyfunc(math.ceil, 1, 1)(self)

    def __round__(self, *digits: int) -> Any:
        return np.frompyfunc(round, 1 + len(digits), 1)(self, *digits)

    @override
    def __float__(self) -> float:
        """Return NaN if any lane is NaN, else infinity; torchrec only calls `math.isnan` on it."""
        return math.nan if any(map(math.isnan, self)) else math.inf

    # NumPy's versions modify the formula's arguments; these return new lanes, like numbers.
    __iadd__: Any = np.ndarray.__add__
    __isub__: Any = np.ndarray.__sub__
    __imul__: Any = np.ndarray.__mul__
    __itruediv__: Any = np.ndarray.__truediv__


class Estimation:
    """Estimates each shard size of some options, and leaves their shards unmade.

    A shard's estimates depend only on its option and its size, and a row-wise table has one or two
    shard sizes for any number of ranks.

    If `constraints`, one per estimator, are given, options that differ only in their tables are
    estimated together in lanes, as far as torchrec's formulas allow. Two shards of each such
    calculation are also estimated alone; if one differs in any bit, all shards are estimated alone.
    """

    def __init__(
        self,
        options: Sequence[ShardingOption],
        layouts: Sequence[ShardLayout],
        ask: Ask,
        constraints: Constraints | None,
    ) -> None:
        self._options, self._layouts, self._ask = options, layouts, ask
        counts = [len(layout.sizes) for layout in layouts]
        self._first = np.cumsum([0, *counts]).tolist()
        self._option = np.repeat(np.arange(len(options)), counts)
        self._sizes = [size for layout in layouts for size in layout.sizes]
        self._estimates = Estimates(len(self._sizes))
        everything: Sequence[int] = range(len(self._sizes))
        checks: list[int] = []
        left = everything
        if constraints is not None:
            checks, left = self._in_lanes(constraints)
        if any(map(self._differs, checks, self._alone(checks))):
            left = everything
        for shard, option in zip(left, self._alone(left), strict=True):
            self._put(np.array([shard]), option)
        for option, layout, first in zip(options, layouts, self._first, strict=False):
            leave_unmade(option, UnmadeShards(layout, self._estimates, first))

    def _in_lanes(self, constraints: Constraints) -> tuple[list[int], Sequence[int]]:
        """Estimate in lanes; return shard numbers to check, and those not estimated yet."""
        # 1. Groups of shards that may share lanes, if they go the same ways in formulas.
        key_of_table = cache(partial(_key_of_table, constraints))
        groups: dict[Hashable, list[int]] = {}
        left: list[int] = []
        for option, first, end in zip(self._options, self._first, self._first[1:], strict=False):
            group = left
            if len(option.input_lengths) <= _ADDED_ALIKE:
                key = _key(option), key_of_table(option.tensor, option.name)
                group = groups.setdefault(key, [])
            group.extend(range(first, end))
        # 2. A group is split where its lanes diverge, as often as that saves time.
        waiting = [np.array(group) for group in groups.values()]
        ways = 8 * len(waiting)
        checks = []
        while waiting:
            shards = waiting.pop()
            if len(shards) < _FEW or ways < 0:
                left.extend(shards.tolist())
                continue
            option = self._together(shards)
            try:
                self._ask([option])
            except Diverged as error:
                ways -= 1
                waiting += [shards[error.true], shards[~error.true]]
            except NeedsNumbers:
                left.extend(shards.tolist())
            else:
                self._put(shards, option)
                checks += [int(shards[0]), int(shards[-1])]
        return checks, left

    def _together(self, shards: Ints) -> ShardingOption:
        """Return one option with one shard, which represents all these shards in lanes."""
        numbers = self._option[shards].tolist()
        one = self._options[numbers[0]]
        tables = [self._layouts[number].table for number in numbers]
        lengths = zip(*(self._options[number].input_lengths for number in numbers), strict=True)
        sizes = zip(*(self._sizes[number] for number in shards.tolist()), strict=True)
        option = with_shards(one, [Shard([*map(Lanes.of, sizes)], [0, 0])])
        option._tensor = _Tables(one.tensor, tables)
        option.input_lengths = [*map(Lanes.of, lengths)]
        return option

    def _alone(self, shards: Sequence[int]) -> list[ShardingOption]:
        """Estimate these shards one by one; return an option for each, with this shard alone."""
        options = [
            with_shards(self._options[self._option[shard]], [Shard([*self._sizes[shard]], [0, 0])])
            for shard in shards
        ]
        self._ask(options)
        return options

    def _put(self, shards: Ints, option: ShardingOption) -> None:
        """Store the estimates of these shards, or lanes of them, from an option with one shard."""
        self._estimates.put(shards, option.shards[0])
        for number in set(self._option[shards].tolist()):
            self._options[number].is_weighted = option.is_weighted

    def _differs(self, shard: int, option: ShardingOption) -> bool:
        """Whether a shard's estimates in lanes differ from those of an option with it alone."""
        theirs = option.shards[0].storage, option.shards[0].perf
        if option.is_weighted != self._options[self._option[shard]].is_weighted:
            return True
        return _exactly(self._estimates.get(shard)) != _exactly(theirs)


def _key(option: ShardingOption) -> Hashable:
    """Return a key that is equal for options that can share lanes if their tables can."""
    values = tuple(v for name, v in vars(option).items() if name not in _OF_TABLES)
    try:
        hash(values)  # one hash of all values takes a tenth of the time of one per value
    except TypeError:
        values = tuple(map(hashable, values))
    return values, len(option.input_lengths)


def _key_of_table(constraints: Constraints, tensor: Any, name: str) -> Hashable:
    """Return a key that is equal for tables whose options can share lanes."""
    values = [tensor.dtype, tensor.device, hashable(getattr(tensor, "_optimizer_classes", None))]
    for of_tables in constraints:
        of_table = of_tables and of_tables.get(name)
        for attribute, value in vars(of_table).items() if of_table else ():
            if attribute not in _OF_CONSTRAINTS:
                values.append((attribute, hashable(value)))
    return tuple(values)


class _Tables:
    """Stands in for the tensors of several tables of one type, for torchrec's estimators."""

    def __init__(self, one: Any, sizes: Sequence[tuple[int, int]]) -> None:
        self.shape = tuple(map(Lanes.of, zip(*sizes, strict=True)))
        self.element_size = one.element_size
        self.dtype, self.device = one.dtype, one.device
        if hasattr(one, "_optimizer_classes"):
            self._optimizer_classes = one._optimizer_classes

    def numel(self) -> Any:
        """Return the number of elements of each tensor, in lanes."""
        return self.shape[0] * self.shape[1]

    nelement = numel


def hashable(value: Any) -> Hashable:
    """Return a key that is equal for equal values; other unhashable objects get their `id`."""
    if isinstance(value, list | tuple):
        return type(value), *map(hashable, value)
    try:
        hash(value)
    except TypeError:
        if not is_dataclass(value):
            return id(value)
        return type(value), *map(hashable, vars(value).values())
    known: Hashable = value
    return known


def _exactly(records: Sequence[Any]) -> list[Any]:
    return [
        (name, type(value), value) for record in records for name, value in vars(record).items()
    ]
