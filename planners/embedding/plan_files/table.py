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
from itertools import pairwise
from pathlib import Path

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

Box = tuple[int, int, int, int]
"""The first row and column of a shard, and those after its last."""


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A table in a plan; `size` (rows and columns) and `item_bytes` are None if unknown."""

    sharding_type: str
    compute_kernel: str
    # Of the shards; no boxes for a data-parallel table, which is whole on each rank.
    boxes: tuple[Box, ...]
    ranks: tuple[int, ...]  # -1 if the rank is gone
    size: tuple[int, int] | None = None
    item_bytes: int | None = None

    @classmethod
    def of_shards(
        cls, table: ShardingOption | TableEntry, size: tuple[int, int], item_bytes: int | None
    ) -> "PlannedTable":
        """Return a table of this size with the shards, which have ranks, of an option or a file."""
        whole = table.sharding_type == ShardingType.DATA_PARALLEL.value
        return cls(
            table.sharding_type,
            table.compute_kernel,
            () if whole else tuple(_box(shard.offset, shard.size) for shard in table.shards),
            tuple(int(shard.rank) for shard in table.shards),
            size,
            item_bytes,
        )

    @classmethod
    def of_parameter(cls, parameter: object) -> "PlannedTable":
        """Return the table of a ParameterSharding of torchrec."""
        spec = getattr(parameter, "sharding_spec", None)
        shards = [] if spec is None else spec.shards
        boxes = tuple(_box(shard.shard_offsets, shard.shard_sizes) for shard in shards)
        ranks = [shard.placement.rank() for shard in shards] or getattr(parameter, "ranks", None)
        return cls(
            getattr(parameter, "sharding_type", ""),
            getattr(parameter, "compute_kernel", ""),
            boxes,
            tuple(map(int, ranks or ())),
            (max(box[2] for box in boxes), max(box[3] for box in boxes)) if boxes else None,
        )

    def is_like(self, option: ShardingOption) -> bool:
        """Whether an option has the sharding type and the kernel of this table."""
        return (self.sharding_type, self.compute_kernel) == (
            option.sharding_type,
            option.compute_kernel,
        )

    def common_with(self, option: ShardingOption) -> tuple[int, int]:
        """Return the rows and columns that the table has both here and in an option."""
        rows, columns = option.tensor.shape
        if self.size is None:
            return rows, columns
        return min(rows, self.size[0]), min(columns, self.size[1])


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
            parameters = (
                (f"{path}.{name}", parameter)
                for path, module in source.plan.items()
                for name, parameter in module.items()
            )
            return cls({fqn: PlannedTable.of_parameter(each) for fqn, each in parameters})
        document = parse_plan(source, read_file(source))
        try:
            for table in document.tables:
                check_tiling(table, table.matrix, document.world_size)
        except InfeasibleDecision as error:
            raise UsageError(f"{source} is a damaged plan: {error}") from None
        return cls.of_document(document)

    @classmethod
    def of_document(cls, document: PlanDocument) -> "PlanTable":
        """Return the table of a plan document."""
        tables = {
            table.name: PlannedTable.of_shards(table, table.matrix, ITEM_BYTES.get(table.dtype))
            for table in document.tables
        }
        return cls(tables, document.world_size)

    @classmethod
    def of_options(cls, options: Iterable[ShardingOption], world_size: int) -> "PlanTable":
        """Return the table of a plan whose shards all have ranks."""
        tables = {}
        for option in options:
            (rows, columns), item_bytes = option.tensor.shape, option.tensor.element_size()
            tables[option.fqn] = PlannedTable.of_shards(option, (rows, columns), item_bytes)
        return cls(tables, world_size)

    def without(self, lost: Collection[int]) -> "PlanTable":
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

        return PlanTable(
            {
                name: replace(table, ranks=renumbered(table.ranks))
                for name, table in self.tables.items()
            },
            None if self.world_size is None else self.world_size - len(gone),
        )

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
            matched.update({fqn: self.tables[before] for fqn in new for before in old})
        return matched

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
        layouts = [_layout(option) for option in options]
        tables = self.match(option.fqn for option in options)
        ends = np.cumsum([0, *(len(layout.which) for layout in layouts)]).tolist()
        home = np.full(ends[-1], -1, np.int64)
        weight = np.zeros(ends[-1], np.int64)
        for option, layout, (start, end) in zip(options, layouts, pairwise(ends), strict=True):
            if (table := tables.get(option.fqn)) is None:
                continue
            weight[start:end] = _weights(table, option, layout)
            same_type = table.item_bytes in (None, option.tensor.element_size())
            if table.is_like(option) and same_type:
                ranks = _homes(table, option, layout)
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
        tables = self.match(by_fqn)
        return sum(_weight(by_fqn[fqn], *tables[fqn].common_with(by_fqn[fqn])) for fqn in tables)

    def check_matches(self, fqns: Collection[str], source: str) -> None:
        """Raise UsageError unless a table of the plan is one of those that are to be planned."""
        if not self.match(fqns):
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


def _box(offset: Sequence[int], size: Sequence[int]) -> Box:
    return offset[0], offset[1], offset[0] + size[0], offset[1] + size[1]


def _clipped(box: Box, size: tuple[int, int]) -> Box:
    """Return the part of a box that is inside the first rows and columns."""
    top, left, bottom, right = box
    return min(top, size[0]), min(left, size[1]), min(bottom, size[0]), min(right, size[1])


def _layout(option: ShardingOption) -> ShardLayout:
    """Return how an option is cut; shards that are not created yet are not created."""
    if (unmade := unmade_shards(option)) is not None:
        return unmade.layout
    rows, columns = option.tensor.shape
    cut = [shard.size for shard in option.shards], [shard.offset for shard in option.shards]
    return ShardLayout((rows, columns), lambda: cut)


def _boxes(layout: ShardLayout) -> list[Box]:
    sizes, offsets = layout.cut()
    return [*map(_box, offsets, sizes)]


def _homes(table: PlannedTable, option: ShardingOption, layout: ShardLayout) -> Ints:
    """Return the previous rank of each shard, or -1 for a new one, if the option is as before."""
    if not table.boxes:
        shards = range(len(layout.which))
        return np.array([n if n in table.ranks else -1 for n in shards], np.int64)
    common = table.common_with(option)
    ranks = {
        _clipped(box, common): rank for box, rank in zip(table.boxes, table.ranks, strict=True)
    }
    return np.array([ranks.get(_clipped(box, common), -1) for box in _boxes(layout)], np.int64)


def _weights(table: PlannedTable, option: ShardingOption, layout: ShardLayout) -> Ints:
    """Return the bytes of each shard's rows and columns in both plans, with optimizer state."""
    common = table.common_with(option)
    sizes, which = layout.sizes, layout.which
    if common != tuple(option.tensor.shape):
        boxes = [_clipped(box, common) for box in _boxes(layout)]
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
