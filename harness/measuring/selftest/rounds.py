"""Measure which slow-downs this machine can detect, with variants that do a known amount more work.

The self-test is a family, so it is measured with the same child processes, blocks and verdicts as
planners. No entry point names it, so no list, suite or report contains it.
"""

import copy
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from harness.contract import Family, Prepared, Quality, Recorder
from harness.contract.parameters import Parameters, workload_parameters
from harness.contract.registry import Registry
from harness.measuring.comparison import Comparison
from harness.measuring.jobs import Event
from harness.measuring.request import Request
from harness.model.cell import Cell, Ratio
from harness.model.errors import ShardbenchError
from harness.model.ids import WorkloadSpec
from harness.model.settings import Settings
from harness.model.topology import Topology
from harness.topologies.lookup import find_topology

# Planners mostly copy small objects; this many copies take about a second.
_UNITS_IN_A_SECOND = 50_000
_TABLES: list[dict[str, Any]] = [
    {
        "name": f"table_{index}",
        "rows": 1000 * index,
        "ranks": list(range(8)),
        "costs": {"perf": 1.0},
    }
    for index in range(4)
]

SHORT = 2.0
"""Default length of a call, in milliseconds, roughly."""

LONG = 8.0
"""Length in milliseconds of a long call, which takes a turn of its own, side by side."""

ADDED = (0, 1, 2, 3, 5, 10, 20)
"""Per cent that may be added to a call: the first is a variant that is equal to the reference."""

SLOWDOWNS = (0, 2, 5, 10)
"""Default per cent of work added to short calls."""

LONG_SLOWDOWNS = (0, 5)
"""Default per cent of work added to long calls: fewer, since each takes long."""


def copies(milliseconds: float = SHORT, percent_more: int = 0) -> int:
    """Copy tables for about `milliseconds`, with exactly `percent_more` per cent more work."""
    units = 100 * max(1, round(milliseconds * _UNITS_IN_A_SECOND / 1e5))
    for _ in range(units + units * percent_more // 100):
        copy.deepcopy(_TABLES)
    return len(_TABLES)


class _CopiesParameters(Parameters, frozen=True):
    """The parameters of workload `copies`: `ms`, the rough milliseconds of a call."""

    ms: Annotated[float, Meta(gt=0, le=1e6)] = SHORT


class _Copies:
    """The functions of the self-test's family; a problem is the milliseconds of a call."""

    def build(self, workload: WorkloadSpec, _: Topology) -> float:
        return workload_parameters(workload, "selftest", {"copies": _CopiesParameters}).ms

    def facts(self, milliseconds: float) -> dict[str, float | str]:
        return {"ms": milliseconds}

    def fingerprint(self, decision: int) -> str:
        return str(decision)

    def validate(self, _: float, __: int) -> None:
        pass

    def quality(self, _: float, decision: int) -> dict[str, float]:
        return {"tables": decision}

    def observe(self, _: Recorder) -> AbstractContextManager[None]:
        return nullcontext()


FAMILY: Family[float, int] = Family(
    name="selftest",
    summary="copies small objects, some variants by a known share more often",
    implementation=_Copies(),
    qualities=(Quality("tables"),),
)


def variant_of(percent: int) -> str:
    """Return the name of the variant with `percent` per cent more work than the reference."""
    return f"slower-{percent}" if percent else "identical"


def _register(name: str, percent: int, **options: Any) -> None:
    def prepare(milliseconds: float) -> Prepared[int]:
        return Prepared(partial(copies, milliseconds, percent))

    FAMILY.variant(name, summary=f"{percent} % more work than the reference", **options)(prepare)


_register("reference", 0, reference=True)
for _percent in ADDED:
    _register(variant_of(_percent), _percent, same_as="reference")


def selftest_registry() -> Registry:
    """Return a registry with only the self-test's family, for child processes."""
    return Registry([FAMILY])


@dataclass(frozen=True, slots=True)
class Tally:
    """The verdicts on one variant over all rounds.

    `percent` is the work added to a call, and `verdicts` counts rounds by verdict. The other fields
    are medians over the rounds: the numbers of pairs and processes, half the interval's width over
    the ratio (`reach`), and the spreads of pairs and processes (see `Ratio`; 0 if unknown).
    """

    percent: int
    verdicts: Mapping[str, int]
    pairs: float
    reach: float
    processes: float = 1
    pair_spread: float = 0
    process_spread: float = 0

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return sum(self.verdicts.values())

    @property
    def found(self) -> int:
        """The number of rounds in which the variant was judged slower."""
        return self.verdicts.get("slower", 0)

    @property
    def differs(self) -> int:
        """The number of rounds judged faster or slower: false alarms for the identical variant."""
        return self.found + self.verdicts.get("faster", 0)

    def in_a_hundred(self, hits: int) -> tuple[float, float]:
        """Return the 95 % confidence interval of the hit count in 100 rounds."""
        low, high = share_interval(hits, self.rounds)
        return 100 * low, 100 * high


def share_interval(hits: int, rounds: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of `hits / rounds` (Clopper and Pearson 1934)."""
    from scipy.stats import binomtest

    interval = binomtest(hits, rounds).proportion_ci(0.95, method="exact")
    return float(interval.low), float(interval.high)


def selftest(
    rounds: int,
    settings: Settings,
    milliseconds: float = SHORT,
    listen: Callable[[Event], None] = lambda event: None,
    added: Sequence[int] = SLOWDOWNS,
) -> Iterator[list[Cell]]:
    """Yield the cells of each round, which compares the variants with its own random seed.

    A call takes about `milliseconds`. `added` selects the variants by their per cent of added work,
    a subset of `ADDED`.

    Raises:
        ShardbenchError: a cell of a round was not measured.
    """
    request = Request(
        FAMILY,
        WorkloadSpec("copies", {"ms": f"{milliseconds:g}"}),
        find_topology("dgx_a100_80gb", 1),
        tuple(map(variant_of, added)),
    )
    for number in range(rounds):
        rule = replace(settings.sampling, seed=settings.sampling.seed + number, counts_work=False)
        comparison = Comparison(request, replace(settings, sampling=rule), selftest_registry)
        cells = comparison.run(listen)
        for cell in cells:
            if cell.status != "ok":
                raise ShardbenchError(f"'{cell.id}' was not measured: {cell.reason}.")
        yield cells


def tallies(rounds: list[list[Cell]]) -> list[Tally]:
    """Return a tally of the verdicts of all rounds for each variant, by rising added work."""
    found = [cell for cells in rounds for cell in cells]
    by_percent = {
        percent: [cell for cell in found if cell.variant == variant_of(percent)]
        for percent in ADDED
    }
    return [_tally(percent, cells) for percent, cells in by_percent.items() if cells]


def _tally(percent: int, cells: list[Cell]) -> Tally:
    ratios = [cell.ratio for cell in cells if cell.ratio]

    def median(figure: Callable[[Ratio], float | None]) -> float:
        return statistics.median(figure(ratio) or 0.0 for ratio in ratios)

    return Tally(
        percent,
        dict(Counter(cell.verdict or "inconclusive" for cell in cells)),
        median(lambda ratio: ratio.pairs),
        median(lambda ratio: (ratio.high - ratio.low) / 2 / ratio.value),
        median(lambda ratio: ratio.processes),
        median(lambda ratio: ratio.pair_spread),
        median(lambda ratio: ratio.process_spread),
    )
