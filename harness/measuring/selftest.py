"""Measure which slow-downs this machine can detect, with variants that do a known amount more work.

The self-test is a family, so it is measured with the same child processes, blocks and verdicts as
planners. No entry point names it, so no list, suite or report contains it.
"""

import copy
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from harness.contract import Family, Prepared, Quality, Recorder
from harness.contract.registry import Registry
from harness.measuring.comparison import Comparison
from harness.measuring.environment import environment
from harness.measuring.jobs import Listener
from harness.measuring.request import Request
from harness.model.cell import Cell, Ratio, Way
from harness.model.declared import Amount, Count
from harness.model.errors import ShardbenchError
from harness.model.ids import WorkloadSpec
from harness.model.settings import Settings
from harness.model.topology import Topology
from harness.store.keys import Key
from harness.store.lines import Entry, Store
from harness.topologies.lookup import find_topology

SELFTESTS = Path("results/selftests.jsonl")

# Planners mostly copy small objects; this many copies take about a second.
_UNITS_IN_A_SECOND = 50_000
_TABLES: list[dict[str, Any]] = [
    {"name": f"table_{n}", "rows": 1000 * n, "ranks": list(range(8)), "costs": {"perf": 1.0}}
    for n in range(4)
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


class _Copies:
    """The functions of the self-test's family; a problem is the milliseconds of a call."""

    def build(self, workload: WorkloadSpec, _: Topology) -> float:
        return float(workload.parameters["ms"])

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


def _variant(name: str, percent: int, **options: Any) -> None:
    summary = f"{percent} % more work than the reference"

    @FAMILY.variant(name, summary=summary, **options)
    def prepare(milliseconds: float) -> Prepared[int]:
        return Prepared(partial(copies, milliseconds, percent))


_variant("reference", 0, reference=True)
for _percent in ADDED:
    _variant(variant_of(_percent), _percent, same_as="reference")


def selftest_registry() -> Registry:
    """Return a registry with only the self-test's family, for child processes."""
    return Registry([FAMILY])


class SelfTest(Struct, frozen=True):
    """The results of one self-test, on one machine and for calls of one length.

    `differing` counts the rounds in which the identical variant was judged faster or slower, and
    `undecided` those in which it was inconclusive. `found` counts, by the per cent of added work,
    the rounds in which that variant was judged slower. `reach` is half the interval's width over
    the ratio; `pair_spread` and `process_spread` are standard deviations of the ratio's logarithm
    (see `Ratio`). These three and `pairs` are medians for the identical variant.
    """

    machine: str
    started: str
    load: float
    call_seconds: Annotated[float, Meta(gt=0)]
    way: Way
    rounds: Annotated[int, Meta(gt=0)]
    round_seconds: Amount
    differing: Count
    undecided: Count
    found: dict[int, Count]
    reach: float
    pair_spread: Amount
    process_spread: Amount
    pairs: Amount = 0.0

    @classmethod
    def of(
        cls, rounds: Sequence[Sequence[Cell]], call_seconds: float, round_seconds: float
    ) -> "SelfTest":
        """Summarise the cells of all rounds of a self-test."""
        cells: dict[str, list[Cell]] = defaultdict(list)
        for cell in chain(*rounds):
            cells[cell.variant].append(cell)
        verdicts = {name: [cell.verdict for cell in cells[name]] for name in cells}
        identical = verdicts[variant_of(0)]
        ratios = [cell.ratio for cell in cells[variant_of(0)] if cell.ratio]

        def median(figure: Callable[[Ratio], float | None]) -> float:
            return statistics.median(figure(ratio) or 0.0 for ratio in ratios)

        where = environment(0)
        return cls(
            machine=where.machine or "",
            started=where.started or "",
            load=where.load or 0.0,
            call_seconds=call_seconds,
            way=statistics.mode(cell.ratio.way for cell in chain(*rounds) if cell.ratio),
            rounds=len(rounds),
            round_seconds=round_seconds,
            differing=identical.count("faster") + identical.count("slower"),
            undecided=identical.count("inconclusive") + identical.count(None),
            found={
                percent: verdicts[variant_of(percent)].count("slower")
                for percent in ADDED[1:]
                if variant_of(percent) in verdicts
            },
            reach=median(lambda ratio: (ratio.high - ratio.low) / 2 / ratio.value),
            pair_spread=median(lambda ratio: ratio.pair_spread),
            process_spread=median(lambda ratio: ratio.process_spread),
            pairs=median(lambda ratio: ratio.pairs),
        )

    def in_a_hundred(self, hits: int) -> tuple[float, float]:
        """Return the 95 % confidence interval of a count of rounds, in 100 rounds.

        The interval is that of Clopper and Pearson (1934).
        """
        from scipy.stats import binomtest

        interval = binomtest(hits, self.rounds).proportion_ci(0.95, method="exact")
        return 100 * float(interval.low), 100 * float(interval.high)

    def sentence(self) -> str:
        """Return sentences with the hits for added work nearest to 5 %, and the false alarms."""
        slower = ""
        if self.found:
            percent = min(self.found, key=lambda percent: abs(percent - 5))
            slower = f" {percent} % more work was found {self.found[percent]} times."
        return (
            f"Self-test of {self.started[:10]} on this machine: {self.rounds} rounds, calls of "
            f"{1000 * self.call_seconds:g} ms.{slower} Identical variants were called different "
            f"{self.differing} times."
        )


def selftest(
    rounds: int,
    settings: Settings,
    milliseconds: float = SHORT,
    listen: Listener = lambda event: None,
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


def note_selftest(result: SelfTest, path: Path = SELFTESTS) -> None:
    """Append a self-test's results to a file; raise ShardbenchError if it cannot be written."""
    key = Key(machine=result.machine)
    _stored(path).add(Entry(f"{result.call_seconds:g} s", str(key), result))


def last_selftests(machine: str, path: Path = SELFTESTS) -> list[SelfTest]:
    """Return a machine's last self-test for each call length, shortest first; skip other lines."""
    tests = [entry.value for entry in _stored(path).entries if entry.value.machine == machine]
    last = {test.call_seconds: test for test in tests}
    return [last[length] for length in sorted(last)]


def _stored(path: Path) -> Store[SelfTest]:
    return Store(path, "selftest", SelfTest, old_kind=True)
