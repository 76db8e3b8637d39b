"""Counts the bytes that a new plan moves, compared with the current plan of the tables.

Bytes are those of weights and optimizer state, by torchrec's formula for the table's optimizer. A
shard does not move if its sharding type, kernel, place in the table and rank are unchanged. If a
table has grown or shrunk, only the part in both plans counts. New tables move nothing.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from torchrec.distributed.planner.shard_estimators import _get_optimizer_multipler
from torchrec.distributed.planner.types import ShardingOption
from torchrec.distributed.types import ShardingPlan, ShardingType

from harness.contract import InfeasibleDecision, UsageError, read_file
from planners.embedding.best_plan.near.moves import Moves
from planners.embedding.plan_files.document import TableEntry, parse_plan
from planners.embedding.search.space import Ints
from planners.embedding.search.unmade_shards import unmade_shards
from planners.embedding.tables.files import ITEM_BYTES

_Box = tuple[int, int, int, int]  # the first row and column, and those after the last


@dataclass(frozen=True, slots=True)
class PreviousTable:
    """A table in the current plan; `size` and `item_bytes` are None if unknown."""

    sharding_type: str
    compute_kernel: str
    size: tuple[int, int] | None
    item_bytes: int | None
    # Of the shards; none for a data-parallel table, which is whole on each rank.
    boxes: tuple[_Box, ...]
    ranks: tuple[int, ...]  # of the shards; -1 if the rank is gone


@dataclass(frozen=True, slots=True)
class PreviousPlan:
    """The current plan: its tables by torchrec's `fqn`, or by name if it comes from a file.

    `world_size` is None if unknown, as for a ShardingPlan.
    """

    tables: Mapping[str, PreviousTable]
    world_size: int | None = None

    def without(self, lost: Collection[int]) -> "PreviousPlan":
        """Return the plan without the ranks `lost`; later ranks are renumbered to close the gaps.

        Raises UsageError if the plan has no such rank.
        """
        for rank in sorted(lost):
            if rank < 0 or (self.world_size is not None and rank >= self.world_size):
                ranks = "" if self.world_size is None else f" of {self.world_size} ranks"
                raise UsageError(f"Rank {rank} cannot be lost: the plan{ranks} has no such rank.")
        gone = np.array(sorted(set(lost)), np.int64)

        def renumbered(ranks: tuple[int, ...]) -> tuple[int, ...]:
            left = np.array(ranks, np.int64)
            return tuple(np.where(np.isin(left, gone), -1, left - np.searchsorted(gone, left)))

        return PreviousPlan(
            {
                name: replace(table, ranks=renumbered(table.ranks))
                for name, table in self.tables.items()
            },
            None if self.world_size is None else self.world_size - len(gone),
        )

    def matched(self, fqns: Iterable[str]) -> dict[str, PreviousTable]:
        """Return the previous table of each of a plan's tables; new tables are left out.

        A table under another module path, as in a wrapped model, is matched by its name. Raises
        UsageError if several tables could be meant.
        """
        now = set(fqns)
        matched = {fqn: self.tables[fqn] for fqn in now & self.tables.keys()}
        earlier = _by_name(self.tables.keys() - now)
        for name, new in _by_name(now - self.tables.keys()).items():
            old = earlier.get(name, [])
            if len(old) * len(new) > 1:
                raise UsageError(
                    f"The previous plan has table {name} as {', '.join(old)} and the model has it "
                    f"as {', '.join(new)}, so it is unclear which of them is which."
                )
            matched.update({fqn: self.tables[before] for fqn in new for before in old})
        return matched

    def moves(self, options: Sequence[ShardingOption], world_size: int) -> Moves:
        """Return each shard's previous rank (-1: none), and the bytes moved if the rank changes.

        Shards that are not created yet are not created, and equal sizes are weighed once.
        """
        layouts = [_Shards(option) for option in options]
        tables = self.matched(option.fqn for option in options)
        ends = np.cumsum([0, *(layout.count for layout in layouts)]).tolist()
        home = np.full(ends[-1], -1, np.int64)
        weight = np.zeros(ends[-1], np.int64)
        for option, shards, (start, end) in zip(options, layouts, pairwise(ends), strict=True):
            table = tables.get(option.fqn)
            if table is not None:
                weight[start:end] = _weights(table, option, shards)
                if _as_before(table, option):
                    ranks = _homes(table, option, shards)
                    home[start:end] = np.where(ranks < world_size, ranks, -1)
        return Moves(home, weight)

    def bytes_moved(self, plan: Iterable[ShardingOption], world_size: int) -> int:
        """Return the bytes that a plan moves; every shard must have a rank."""
        options = list(plan)
        ranks = np.array([shard.rank for option in options for shard in option.shards], np.int64)
        return self.moves(options, world_size).bytes_of(np.arange(len(ranks)), ranks)

    def total_bytes(self, options: Iterable[ShardingOption]) -> int:
        """Return the bytes of weights and optimizer state of all tables in both plans."""
        by_fqn = {option.fqn: option for option in options}
        tables = self.matched(by_fqn)
        return sum(_weight(by_fqn[fqn], *_common(tables[fqn], by_fqn[fqn])) for fqn in tables)

    def check_matches(self, fqns: Collection[str], source: str) -> None:
        """Raise UsageError unless a table of the plan is one of those that are to be planned."""
        if not self.matched(fqns):
            raise UsageError(
                f"{source} is a plan of other tables: it places none of the {len(fqns)} that are "
                f"to be planned, such as {min(map(_name, fqns))}."
            )


def _name(fqn: str) -> str:
    return fqn.rpartition(".")[2]


def _by_name(fqns: Iterable[str]) -> dict[str, list[str]]:
    """Return the fqns of each table name, in order."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for fqn in sorted(fqns):
        by_name[_name(fqn)].append(fqn)
    return by_name


def previous_plan(source: ShardingPlan | str | Path | PreviousPlan) -> PreviousPlan:
    """Convert a ShardingPlan or a plan file to a PreviousPlan; raises UsageError for a bad file."""
    if isinstance(source, PreviousPlan):
        return source
    if isinstance(source, ShardingPlan):
        return PreviousPlan(
            {
                f"{path}.{name}": _of_parameter(parameter)
                for path, module in source.plan.items()
                for name, parameter in module.items()
            }
        )
    document = parse_plan(source, read_file(source))
    try:
        for table in document.tables:
            table.sharded.check_tiling(document.world_size)
    except InfeasibleDecision as error:
        raise UsageError(f"{source} is a damaged plan: {error}") from None
    return previous_of(document.tables, document.world_size)


def previous_of(tables: Iterable[TableEntry], world_size: int) -> PreviousPlan:
    """Return a PreviousPlan with the tables of a plan document."""
    return PreviousPlan({table.name: _of_entry(table) for table in tables}, world_size)


def _of_entry(table: TableEntry) -> PreviousTable:
    whole = table.sharding_type == ShardingType.DATA_PARALLEL.value
    return PreviousTable(
        table.sharding_type,
        table.compute_kernel,
        (table.rows, table.dim),
        ITEM_BYTES.get(table.dtype),
        () if whole else tuple(_box(shard.offset, shard.size) for shard in table.shards),
        tuple(shard.rank for shard in table.shards),
    )


def _of_parameter(parameter: object) -> PreviousTable:
    spec = getattr(parameter, "sharding_spec", None)
    shards = [] if spec is None else spec.shards
    boxes = tuple(_box(shard.shard_offsets, shard.shard_sizes) for shard in shards)
    size = (max(box[2] for box in boxes), max(box[3] for box in boxes)) if boxes else None
    ranks = [shard.placement.rank() for shard in shards] or getattr(parameter, "ranks", None) or []
    return PreviousTable(
        getattr(parameter, "sharding_type", ""),
        getattr(parameter, "compute_kernel", ""),
        size,
        None,
        boxes,
        tuple(int(rank) for rank in ranks),
    )


def _box(offset: Sequence[int], size: Sequence[int]) -> _Box:
    return offset[0], offset[1], offset[0] + size[0], offset[1] + size[1]


def _clipped(box: _Box, size: tuple[int, int]) -> _Box:
    """Return the part of a box that is inside the first rows and columns."""
    top, left, bottom, right = box
    return min(top, size[0]), min(left, size[1]), min(bottom, size[0]), min(right, size[1])


def _common(table: PreviousTable, option: ShardingOption) -> tuple[int, int]:
    """Return the rows and columns that a table has in both plans."""
    rows, columns = option.tensor.shape
    if table.size is None:
        return rows, columns
    return min(rows, table.size[0]), min(columns, table.size[1])


class _Shards:
    """The shards of an option: their number, their sizes and their boxes."""

    def __init__(self, option: ShardingOption) -> None:
        self._option, self._unmade = option, unmade_shards(option)
        self.count = len(self._unmade.layout.which if self._unmade else option.shards)

    @property
    def sizes(self) -> tuple[Sequence[Sequence[int]], Ints]:
        """The distinct sizes, or all sizes, and the index of each shard's size."""
        if self._unmade is not None:
            return self._unmade.layout.sizes, self._unmade.layout.which
        return [shard.size for shard in self._option.shards], np.arange(self.count)

    @property
    def boxes(self) -> list[_Box]:
        if self._unmade is not None:
            sizes, offsets = self._unmade.layout.cut()
            return [*map(_box, offsets, sizes)]
        return [_box(shard.offset, shard.size) for shard in self._option.shards]


def _as_before(table: PreviousTable, option: ShardingOption) -> bool:
    """Whether an option has the sharding type, kernel and data type of the previous plan."""
    return (table.sharding_type, table.compute_kernel) == (
        option.sharding_type,
        option.compute_kernel,
    ) and table.item_bytes in (None, option.tensor.element_size())


def _homes(table: PreviousTable, option: ShardingOption, shards: _Shards) -> Ints:
    """Return the previous rank of each shard, or -1 for a new one, if the option is as before."""
    if not table.boxes:
        return np.array([n if n in table.ranks else -1 for n in range(shards.count)], np.int64)
    common = _common(table, option)
    boxes = [_clipped(box, common) for box in table.boxes]
    ranks = dict(zip(boxes, table.ranks, strict=True))
    return np.array([ranks.get(_clipped(box, common), -1) for box in shards.boxes], np.int64)


def _weights(table: PreviousTable, option: ShardingOption, shards: _Shards) -> Ints:
    """Return the bytes of each shard's rows and columns in both plans, with optimizer state."""
    common = _common(table, option)
    sizes, which = shards.sizes
    if common != tuple(option.tensor.shape):
        boxes = [_clipped(box, common) for box in shards.boxes]
        sizes = [(bottom - top, right - left) for top, left, bottom, right in boxes]
        which = np.arange(len(boxes))
    return np.array([_weight(option, *size) for size in sizes], np.int64)[which]


def _weight(option: ShardingOption, rows: int, columns: int) -> int:
    """Return the bytes of some rows and columns of a table, with optimizer state."""
    tensor = option.tensor
    optimizer = getattr(tensor, "_optimizer_classes", [None])[0]
    states: float = _get_optimizer_multipler(optimizer, tensor.shape)
    weights: int = rows * columns * tensor.element_size()
    return math.ceil(weights * (1 + states))
