"""A plan as a table: where the shards of each table are, and which bytes a new plan moves.

Bytes are those of weights and optimizer state, by torchrec's formula for the table's optimizer. A
shard does not move if its sharding type, kernel, place in the table and rank are unchanged. If a
table has grown or shrunk, only the part in both plans counts. New tables move nothing.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torchrec.distributed.planner.shard_estimators import _get_optimizer_multipler
from torchrec.distributed.planner.types import ShardingOption
from torchrec.distributed.types import ShardingPlan, ShardingType

from harness.contract import InfeasibleDecision, UsageError, read_file
from planners.embedding.plan_files.checks import check_tiling
from planners.embedding.plan_files.document import PlanDocument, TableEntry, parse_plan
from planners.embedding.search.options import ShardLayout, unmade_shards
from planners.embedding.search.space import Ints, SearchSpace
from planners.embedding.tables.files import ITEM_BYTES

Box = tuple[int, ...]
"""The first row and column of a shard, and those after its last."""

_REPLICATED = ShardingType.DATA_PARALLEL.value


@dataclass(frozen=True)
class PlannedTable:
    """A table in a plan, with the boxes and ranks of its shards."""

    sharding_type: str
    compute_kernel: str
    boxes: tuple[Box, ...]  # empty if unknown, as for a data-parallel table of a ShardingPlan
    ranks: tuple[int, ...]  # -1 if the rank is gone
    item_bytes: int | None = None  # bytes of a weight, None if unknown

    @classmethod
    def of(cls, table: ShardingOption | TableEntry, item_bytes: int) -> "PlannedTable":
        """Return the table of an option or a plan file, whose shards have ranks."""
        boxes = tuple(_box(shard.offset, shard.size) for shard in table.shards)
        ranks = tuple(int(shard.rank) for shard in table.shards)
        return cls(table.sharding_type, table.compute_kernel, boxes, ranks, item_bytes)

    @classmethod
    def of_parameter(cls, parameter: Any) -> "PlannedTable":
        """Return the table of a ParameterSharding of torchrec."""
        shards = parameter.sharding_spec.shards if parameter.sharding_spec else ()
        boxes = tuple(_box(shard.shard_offsets, shard.shard_sizes) for shard in shards)
        ranks = [shard.placement.rank() for shard in shards] or parameter.ranks or ()
        kind = parameter.sharding_type, parameter.compute_kernel
        return cls(*kind, boxes, tuple(map(int, ranks)))

    def is_like(self, option: ShardingOption) -> bool:
        """Whether an option has this table's sharding type and kernel, and weights as large."""
        kind = self.sharding_type, self.compute_kernel
        return kind == (option.sharding_type, option.compute_kernel) and (
            self.item_bytes in (None, option.tensor.element_size())
        )

    @cached_property
    def _size(self) -> tuple[float, float]:
        """The rows and columns, infinite if unknown."""
        rows, columns = (max((box[end] for box in self.boxes), default=math.inf) for end in (2, 3))
        return rows, columns

    def common_with(self, option: ShardingOption) -> tuple[int, int]:
        """Return the rows and columns that the table has both here and in an option."""
        rows, columns = map(min, option.tensor.shape, self._size)
        return int(rows), int(columns)


@dataclass(frozen=True)
class Moves:
    """The previous rank of each shard of a search space, and the bytes moved if it changes rank.

    A shard that the previous plan lacks (with the same kernel and cut) counts as moved on any rank.
    """

    home: Ints  # the previous rank, or -1 if there is none, shape (S,)
    weight: Ints  # bytes moved if the shard is on any rank but its home, shape (S,)

    @cached_property
    def at_home(self) -> Ints:
        """The shards with a previous rank; few, even if S is large."""
        return np.flatnonzero(self.home >= 0)

    def options_at_home(self, space: SearchSpace) -> Ints:
        """Return the option of each shard of `at_home`."""
        return np.searchsorted(space.first_shard, self.at_home, side="right") - 1

    def least_moved(self, space: SearchSpace) -> Ints:
        """Return the bytes of each option's shards without a previous rank, shape (O,)."""
        moved = np.add.reduceat(self.weight, space.first_shard[:-1])
        np.subtract.at(moved, self.options_at_home(space), self.weight[self.at_home])
        return np.asarray(moved)

    def bytes_of(self, shards: Ints, ranks: Ints) -> int:
        """Return the total bytes moved if `shards[i]` is placed on `ranks[i]`."""
        return int(self.weight[shards][self.home[shards] != ranks].sum())


@dataclass(frozen=True, slots=True)
class PlanTable:
    """A plan: its tables by torchrec's `fqn`, or by name if it comes from a file.

    `world_size` is None if unknown, as for a ShardingPlan.
    """

    tables: Mapping[str, PlannedTable]
    world_size: int | None = None

    @classmethod
    def of(cls, source: "ShardingPlan | str | Path | PlanTable") -> "PlanTable":
        """Return the table of a ShardingPlan or a plan file; raises UsageError for a bad file."""
        if isinstance(source, PlanTable):
            return source
        if isinstance(source, ShardingPlan):
            return cls(
                {
                    f"{path}.{name}": PlannedTable.of_parameter(parameter)
                    for path, module in source.plan.items()
                    for name, parameter in module.items()
                }
            )
        document = parse_plan(source, read_file(source))
        try:
            for table in document.tables:
                check_tiling(table, table.size, document.world_size)
        except InfeasibleDecision as error:
            raise UsageError(f"{source} is a damaged plan: {error}") from None
        return cls.of_document(document)

    @classmethod
    def of_document(cls, document: PlanDocument) -> "PlanTable":
        """Return the table of a plan document."""
        tables = {t.name: PlannedTable.of(t, ITEM_BYTES[t.dtype]) for t in document.tables}
        return cls(tables, document.world_size)

    @classmethod
    def of_options(cls, options: Iterable[ShardingOption], world_size: int) -> "PlanTable":
        """Return the table of a plan whose shards all have ranks."""
        tables = {o.fqn: PlannedTable.of(o, o.tensor.element_size()) for o in options}
        return cls(tables, world_size)

    def without(self, lost: Collection[int]) -> "PlanTable":
        """Return the plan without the ranks `lost`; later ranks are renumbered to close the gaps.

        Raises UsageError if the plan has no such rank.
        """
        size = self.world_size
        for rank in sorted(lost):
            if rank < 0 or (size is not None and rank >= size):
                ranks = "" if size is None else f" of {size} ranks"
                raise UsageError(f"Rank {rank} cannot be lost: the plan{ranks} has no such rank.")
        gone = np.array(sorted(set(lost)), np.int64)
        tables = {}
        for name, table in self.tables.items():
            old = np.array(table.ranks, np.int64)
            new = np.where(np.isin(old, gone), -1, old - np.searchsorted(gone, old))
            tables[name] = replace(table, ranks=tuple(new.tolist()))
        return PlanTable(tables, None if size is None else size - len(gone))

    def match(self, fqns: Iterable[str]) -> dict[str, PlannedTable]:
        """Return this plan's table for each of the `fqns`; new tables are left out.

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
            if old:
                matched[new[0]] = self.tables[old[0]]
        return matched

    def check_matches(self, fqns: Collection[str], source: str) -> None:
        """Raise UsageError unless a table of the plan is one of those that are to be planned."""
        if not self.match(fqns):
            raise UsageError(
                f"{source} is a plan of other tables: it places none of the {len(fqns)} that are "
                f"to be planned, such as {min(map(_name, fqns))}."
            )

    def chosen(self, space: SearchSpace) -> tuple[Ints, Ints] | None:
        """Return this plan's option of each table of a search space, and the ranks of its shards.

        An option is the plan's if it has the same sharding type, kernel and number of shards.
        Return None if a table has no such option, or if the plan has other tables, too.
        """
        tables = self.match(option.fqn for option in space.options)
        counts = np.diff(space.first_shard)
        options = np.full(space.tables, -1)
        ranks: list[tuple[int, ...]] = [()] * space.tables
        for number, option in enumerate(space.options):
            table = tables.get(option.fqn)
            if table and table.is_like(option) and counts[number] == len(table.ranks):
                options[space.table[number]] = number
                ranks[space.table[number]] = table.ranks
        if len(self.tables) != space.tables or (options < 0).any():
            return None
        return options, np.concatenate(ranks)

    def moves(self, options: Sequence[ShardingOption], world_size: int) -> Moves:
        """Return each shard's previous rank (-1: none), and the bytes moved if the rank changes.

        Shards that are not created yet are not created, and equal sizes are weighed once.
        """
        tables = self.match(option.fqn for option in options)
        layouts = [_layout(option) for option in options]
        ends = np.cumsum([0, *(len(layout.which) for layout in layouts)]).tolist()
        home, weight = np.full(ends[-1], -1, np.int64), np.zeros(ends[-1], np.int64)
        for option, layout, begin, end in zip(options, layouts, ends, ends[1:], strict=False):
            if table := tables.get(option.fqn):
                weight[begin:end], ranks = _moves_of(table, option, layout)
                if ranks is not None:
                    home[begin:end] = np.where(ranks < world_size, ranks, -1)
        return Moves(home, weight)

    def bytes_moved(self, plan: Iterable[ShardingOption], world_size: int) -> int:
        """Return the bytes that a plan moves; every shard must have a rank."""
        options = list(plan)
        ranks = np.array([shard.rank for option in options for shard in option.shards], np.int64)
        return self.moves(options, world_size).bytes_of(np.arange(len(ranks)), ranks)

    def total_bytes(self, options: Iterable[ShardingOption]) -> int:
        """Return the bytes of weights and optimizer state of all tables in both plans."""
        by_fqn = {option.fqn: option for option in options}
        tables = self.match(by_fqn)
        return sum(_weight(by_fqn[fqn], *tables[fqn].common_with(by_fqn[fqn])) for fqn in tables)


def _name(fqn: str) -> str:
    return fqn.rpartition(".")[2]


def _by_name(fqns: Iterable[str]) -> dict[str, list[str]]:
    """Return the fqns of each table name, in order."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for fqn in sorted(fqns):
        by_name[_name(fqn)].append(fqn)
    return by_name


def _box(offset: Sequence[int], size: Sequence[int]) -> Box:
    return offset[0], offset[1], offset[0] + size[0], offset[1] + size[1]


def _clipped(boxes: Iterable[Box], size: tuple[int, int]) -> list[Box]:
    """Return the part of each box that is inside the first rows and columns."""
    ends = (*size, *size)
    return [tuple(map(min, box, ends)) for box in boxes]


def _layout(option: ShardingOption) -> ShardLayout:
    """Return how an option is cut; shards that are not created yet are not created."""
    if (unmade := unmade_shards(option)) is not None:
        return unmade.layout
    rows, columns = option.tensor.shape
    cut = [shard.size for shard in option.shards], [shard.offset for shard in option.shards]
    return ShardLayout((rows, columns), lambda: cut)


def _moves_of(
    table: PlannedTable, option: ShardingOption, layout: ShardLayout
) -> tuple[Ints, Ints | None]:
    """Return the bytes of each shard's part in both plans, and its previous rank or -1.

    There are no previous ranks, None, if the option is another one than before.
    """
    # 1. What the shards are of the rows and columns in both plans.
    common, is_like = table.common_with(option), table.is_like(option)
    is_resized = common != tuple(option.tensor.shape)
    boxes: list[Box] = []
    if is_like or is_resized:
        sizes, offsets = layout.cut()
        boxes = _clipped(map(_box, offsets, sizes), common)
    # 2. Their bytes; those of equal shards are computed once.
    if is_resized:
        weights = [_weight(option, box[2] - box[0], box[3] - box[1]) for box in boxes]
        weight = np.array(weights, np.int64)
    else:
        weight = np.array([_weight(option, *size) for size in layout.sizes], np.int64)[layout.which]
    # 3. Their ranks; shard n of a data-parallel table is on rank n.
    if not is_like:
        return weight, None
    if table.sharding_type == _REPLICATED:
        shards = np.arange(len(weight))
        return weight, np.where(np.isin(shards, table.ranks), shards, -1)
    ranks = dict(zip(_clipped(table.boxes, common), table.ranks, strict=True))
    return weight, np.array([ranks.get(box, -1) for box in boxes], np.int64)


def _weight(option: ShardingOption, rows: int, columns: int) -> int:
    """Return the bytes of some rows and columns of a table, with optimizer state."""
    tensor = option.tensor
    optimizer = getattr(tensor, "_optimizer_classes", [None])[0]
    states: float = _get_optimizer_multipler(optimizer, tensor.shape)
    weights: int = rows * columns * tensor.element_size()
    return math.ceil(weights * (1 + states))
