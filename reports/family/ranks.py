"""The load of each rank under two plans: the reference's plan, and the best different plan."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.model.cell import Cell, RankTable
from reports.core.columns import first_quality
from reports.core.formatting import count, percent
from reports.core.table import Table, TableColumn, code, numbers, table_of, text
from reports.family.data import FamilyView

_MOST_ROWS = 128
_AT_EACH_END = 8


@dataclass(frozen=True, slots=True)
class Load:
    """A figure of the ranks under a plan, such as GiB, by rank; `capacity` is a rank's limit."""

    variant: str
    figure: str
    values: Sequence[float]
    capacity: float | None

    @property
    def most(self) -> float:
        """The largest value."""
        return max(self.values)

    @property
    def heaviest(self) -> int:
        """The rank with the largest value."""
        return self.values.index(self.most)

    @property
    def mean(self) -> float:
        """The mean over all ranks."""
        return sum(self.values) / len(self.values)


@dataclass(frozen=True, slots=True)
class RankView:
    """The ranks' loads under one or two plans on a problem, first the variant compared with."""

    problem: str
    plans: dict[str, RankTable]

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return max(len(plan.rows) for plan in self.plans.values())

    @property
    def figures(self) -> list[str]:
        """The figures that are not 0 for all ranks, first the one that measures the load."""
        plans = self.plans.values()
        names = dict.fromkeys(name for plan in plans for name in (plan.bar, *plan.columns))
        return [name for name in names if any(any(load.values) for load in self.loads(name))]

    def loads(self, figure: str) -> list[Load]:
        """Return a figure's values under each plan that has it."""
        loads = []
        for variant, plan in self.plans.items():
            if figure in plan.columns:
                place = plan.columns.index(figure)
                values = [row[place] for row in plan.rows]
                loads.append(Load(variant, figure, values, plan.capacities[place]))
        return loads


def rank_view(family: FamilyView) -> RankView | None:
    """Return the loads of all ranks under two plans: the baseline's, and the best that differs.

    They are on `quality_problem`, or on the largest problem with loads if that has none. Return
    None if no plan has loads.
    """
    cells = [cell for cell in family.records if cell.ranks and cell.ranks.rows]
    if not cells:
        return None
    problem = family.quality_problem
    if not any(str(cell.problem) == problem for cell in cells):
        largest = max(cells, key=lambda cell: (cell.size or 0.0, cell.problem.gpus))
        problem = str(largest.problem)
    here = [cell for cell in cells if str(cell.problem) == problem]
    baseline = next((cell for cell in here if cell.variant == cell.against), here[0])
    others = [
        cell
        for cell in here
        if cell.fingerprint != baseline.fingerprint and first_quality(cell) is not None
    ]

    def rating(cell: Cell) -> float:
        """Return the first quality, lower is better."""
        sign = -1.0 if cell.qualities[0].better == "higher" else 1.0
        return sign * (first_quality(cell) or 0.0)

    chosen = [baseline, *sorted(others, key=rating)[:1]]
    return RankView(problem, {cell.variant: cell.ranks for cell in chosen if cell.ranks})


def ranks_table(view: RankView) -> Table:
    """Return a row per rank, with the figures of both plans; of many, the ranks at both ends."""

    def column(load: Load) -> TableColumn:
        return numbers(f"{load.figure}, {load.variant}", lambda rank: load.values[rank])

    columns = (column(load) for figure in view.figures for load in view.loads(figure))
    return table_of(_shown(view), numbers("rank", lambda rank: rank, count), *columns)


def ranks_caption(view: RankView) -> str:
    """Return the caption of `ranks_table`."""
    if len(_shown(view)) == view.ranks:
        return "Every rank."
    baseline = next(iter(view.plans))
    return f"The {_AT_EACH_END} heaviest and lightest of {view.ranks:,} ranks under `{baseline}`."


def _shown(view: RankView) -> Sequence[int]:
    if view.ranks <= _MOST_ROWS or not view.figures:
        return range(view.ranks)
    values = view.loads(view.figures[0])[0].values
    heaviest = sorted(range(len(values)), key=lambda rank: -values[rank])
    return [*heaviest[:_AT_EACH_END], *heaviest[-_AT_EACH_END:]]


def loads_table(view: RankView) -> Table:
    """Return a row per plan and figure: the heaviest rank, the mean, and the capacity used."""
    return table_of(
        (load for figure in view.figures for load in view.loads(figure)),
        code("plan of", "variant"),
        text("figure"),
        numbers("heaviest", "most"),
        numbers("on rank", "heaviest", count),
        numbers("mean", "mean"),
        numbers("heaviest over mean", lambda load: load.most / load.mean if load.mean else None),
        numbers("capacity", "capacity"),
        numbers(
            "used of it", lambda load: load.most / load.capacity if load.capacity else None, percent
        ),
    )
