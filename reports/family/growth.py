"""The growth of planning time with the size of a problem."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from harness.model.cell import Cell
from harness.model.ids import WorkloadSpec
from reports.core.columns import median

LEAST_SIZES = 5  # of a series that reports show
_LEAST_FITTED = 3
_CONFIDENCE = 0.95


class PowerLaw(NamedTuple):
    """The exponent of time over size, and the ends of its 95 % interval."""

    exponent: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Point:
    """The CPU seconds of a call on a problem of some size.

    If the call passed its budget (`budget_s`), `seconds` is the projected time (`is_projected`), or
    without a projection the budget.
    """

    size: float
    seconds: float
    budget_s: float | None = None
    is_projected: bool = False

    @property
    def is_measured(self) -> bool:
        """Whether the call ended."""
        return self.budget_s is None and not self.is_projected

    @property
    def is_stopped(self) -> bool:
        """Whether the call was stopped without any progress to project from."""
        return not self.is_measured and not self.is_projected


@dataclass(frozen=True, slots=True)
class Series:
    """The times of a variant on problems that differ only in size, in increasing order.

    `sweep` is what the problems have in common: the workload without its size, the topology, and
    the machine if there are several.
    """

    sweep: str
    size_name: str
    variant: str
    points: tuple[Point, ...]

    @property
    def measured(self) -> tuple[Point, ...]:
        """The points of calls that ended."""
        return tuple(point for point in self.points if point.is_measured)

    @property
    def fit(self) -> PowerLaw | None:
        """The power law of the measured points, not of projections; None with fewer than three."""
        measured = self.measured
        return fit_exponent([p.size for p in measured], [p.seconds for p in measured])


def fit_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> PowerLaw | None:
    """Fit a power law to times in seconds by least squares on logarithms.

    The interval is Student's for the slope of a line. Return None with fewer than three different
    sizes, since two points leave no error to estimate, or if a value is not positive.
    """
    if len(set(sizes)) < _LEAST_FITTED or min(*sizes, *seconds) <= 0:
        return None
    x, y = np.log(np.asarray(sizes, float)), np.log(np.asarray(seconds, float))
    (exponent, _), covariance = np.polyfit(x, y, 1, cov=True)
    reach = stdtrit(len(x) - 2, (1 + _CONFIDENCE) / 2) * math.sqrt(covariance[0, 0])
    return PowerLaw(float(exponent), float(exponent - reach), float(exponent + reach))


def series_of(cells: Iterable[Cell], least_sizes: int = LEAST_SIZES) -> list[Series]:
    """Return a series for each variant on problems that differ only in size.

    Else, if the GPUs grow with the size, one size is the square root of both multiplied. Series
    with fewer than `least_sizes` sizes and cells with a different decision are left out.
    """
    timed = [cell for cell in cells if cell.decision != "different" and _point(cell)]
    several = len({cell.environment.machine for cell in timed}) > 1
    all_series: list[Series] = []
    rest: list[Cell] = []
    # 1. Problems that differ only in size.
    for sweep, group in _grouped(timed, lambda cell: _sweep(cell, several, of_gpus=True)).items():
        if len({cell.size for cell in group}) > 1:
            all_series += _series(sweep, group[0].size_name or "", group, of_gpus=False)
        else:
            rest += group
    # 2. Among the others, problems that have more GPUs the larger they are.
    for sweep, group in _grouped(rest, lambda cell: _sweep(cell, several, of_gpus=False)).items():
        pairs = sorted({(cell.size or 0.0, cell.problem.gpus) for cell in group})
        gpus = [count for _, count in pairs]
        if len(pairs) > 1 and gpus == sorted(set(gpus)) and len(dict(pairs)) == len(pairs):
            all_series += _series(sweep, f"sqrt({group[0].size_name} * GPUs)", group, of_gpus=True)
    return [series for series in all_series if len({p.size for p in series.points}) >= least_sizes]


def _grouped(cells: Iterable[Cell], key: Callable[[Cell], str]) -> dict[str, list[Cell]]:
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    return groups


def _series(sweep: str, size_name: str, cells: Sequence[Cell], of_gpus: bool) -> Iterator[Series]:
    """Yield a series per variant."""
    for variant, group in _grouped(cells, lambda cell: cell.variant).items():
        points = filter(None, (_point(cell, of_gpus) for cell in group))
        ordered = tuple(sorted(points, key=lambda point: point.size))
        yield Series(sweep, size_name, variant, ordered)


def _point(cell: Cell, of_gpus: bool = False) -> Point | None:
    """Return the time of a cell; None without a size or a time."""
    size, spent = cell.size or 0.0, median(cell.cpu_s) or 0.0
    if of_gpus:
        size = math.sqrt(size * cell.problem.gpus)
    budget = cell.settings.budget if cell.settings else 0.0
    if size <= 0:
        return None
    if cell.status == "over budget" and cell.projection_s:
        return Point(size, cell.projection_s, budget or None, is_projected=True)
    if cell.status == "over budget" and budget:
        return Point(size, budget, budget)
    return Point(size, spent) if cell.status == "ok" and spent else None


def _sweep(cell: Cell, several: bool, of_gpus: bool) -> str:
    """Return what a cell's problem shares with problems of other sizes, and of other GPUs.

    The parameter with the size's name is left out, or else the only number: the size of
    `optimizer[impl=single,params=20]` is counted in ops, but `params` sets it.
    """
    workload = cell.problem.workload
    numbers = [k for k, value in workload.parameters.items() if value.isdigit() and k != "seed"]
    size = cell.size_name
    if size not in workload.parameters and len(numbers) == 1:
        (size,) = numbers
    shared = {name: value for name, value in workload.parameters.items() if name != size}
    gpus = f":{cell.problem.gpus}" if of_gpus else ""
    machine = f" on machine {cell.environment.machine}" if several else ""
    return f"{WorkloadSpec(workload.name, shared)}/{cell.problem.topology}{gpus}{machine}"
