"""The benchmarks of all families, which asv discovers here: time, quality, counters and decisions.

A benchmark has a name like `families.embedding.time_plan`. Its parameters are a variant and a
problem of the family. The families of other packages are included if they are registered.

The result is n/a if a planner is not installed, does not support the problem, or does not exist at
the commit. A planner that raises an error, or whose plan fails the check, fails in asv.
"""

import importlib
import math
import os
import re
import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from msgspec import Struct, json

from benchmarks import OUTLINE_FILE
from harness.contract import Family, Prepared
from harness.contract.registry import Registry, load_registry
from harness.measuring.comparison import Comparison
from harness.measuring.request import Request
from harness.measuring.timing.turns import SystemClock, timed_turn
from harness.model.cell import Cell
from harness.model.errors import NotApplicable, RegistryError, ShardbenchError, UnknownName
from harness.model.ids import ProblemId
from harness.model.settings import SamplingRule, Settings
from harness.topologies.lookup import placed_on

# The least duration of a sample of `time_plan`. Shorter calls are repeated, for the clock.
_SAMPLE_SECONDS = 0.02
_MOST_CALLS = 1000
# A smoke test has two variants of each family on its first problem, and one of their figures.
_IS_SMOKE_TEST = bool(os.environ.get("SHARDBENCH_ASV_SMOKE"))

# Sixteen pairs if calls are short; long calls have fewer, and are not counted.
_SETTINGS = Settings(
    sampling=SamplingRule(seconds=0.2, least_blocks=2, most_blocks=2, warmup_seconds=0.1)
    if _IS_SMOKE_TEST
    else SamplingRule(seconds=20.0, least_blocks=8, most_blocks=8, warmup_seconds=1.0)
)

F = TypeVar("F", bound=Callable[..., Any])

# The cell, or why there is none, by (family, variant, problem).
Cells = Mapping[tuple[str, str, str], Cell | ShardbenchError]


class Outline(Struct, frozen=True):
    """The variants and problems of a family, asv's two parameters, and the units of figures."""

    variants: tuple[str, ...]
    problems: tuple[str, ...]
    figures: dict[str, str]


def _in(unit: str) -> Callable[[F], F]:
    """Return a decorator that tells asv the unit of a benchmark."""

    def add(function: F) -> F:
        vars(function).update(unit=unit)
        return function

    return add


class FamilyBenchmarks(ABC):
    """The benchmarks of one family. asv skips this class because it is abstract.

    `family` is the family's name in the registry that `registry` returns, also in child processes.
    `outlines` has the variants and problems of all families that share this class's `setup_cache`.

    asv starts a process for each benchmark, cell and round. It does not compare results of
    different versions. Increase `version` when a benchmark measures something else, that is when
    the sampling changes or when the same problem id builds a different problem.
    """

    registry: ClassVar[Callable[[], Registry]]
    outlines: ClassVar[Mapping[str, Outline]]
    family: ClassVar[str]
    params: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]]
    param_names = ("variant", "problem")
    version = "2"

    # Eight samples per commit: asv's test finds no difference with six, which its defaults may
    # take. They are spread over four rounds, since a slow spell of the machine spoils a round.
    rounds = 4
    repeat = 2
    # Above zero, so that asv makes one call before the samples.
    warmup_time = 0.001

    def __init__(self) -> None:
        self._seconds = 0.0
        self._prepared: Prepared[Any] | None = None

    @abstractmethod
    def setup_cache(self) -> Cells:
        """Return `cells()`. asv caches the result for the benchmarks of the family.

        asv identifies a cache by its function, not its class, so each cache needs its own function.
        """

    def cells(self) -> Cells:
        """Compare the variants of all families in `outlines` on each problem."""
        return {
            (name, variant, problem): cell
            for name, outline in self.outlines.items()
            for problem in outline.problems
            for variant, cell in compared(type(self).registry, name, outline, problem).items()
        }

    def setup(self, cells: Cells, variant: str, problem: str) -> None:
        """Raise NotImplementedError, asv's n/a, or the error of a cell without figures."""
        self.cell(cells, variant, problem)

    def cell(self, cells: Cells, variant: str, problem: str) -> Cell:
        """Return a cell with figures; raises as `setup`."""
        cell = cells[self.family, variant, problem]
        if isinstance(cell, NotApplicable):
            raise NotImplementedError(cell)  # asv then shows n/a
        if isinstance(cell, ShardbenchError):
            raise cell
        return cell

    def timer(self) -> float:
        """Return the total CPU seconds of the timed calls so far. asv uses it as its clock."""
        return self._seconds

    def time_plan(self, cells: Cells, variant: str, problem: str) -> None:
        """Time one sample of the planner, and advance `timer` by the CPU time of one call."""
        if self._prepared is None:
            family = type(self).registry().find(self.family)
            request = request_of(family, problem)
            self._prepared = family.find(variant).prepared(request.build())
            # asv exits without a call to close, but it deletes this object before it exits.
            weakref.finalize(self, self._prepared.close)
        times = self.cell(cells, variant, problem).cpu_s
        lasts = max(times.median if times else math.inf, _SAMPLE_SECONDS / _MOST_CALLS)
        calls = math.ceil(_SAMPLE_SECONDS / lasts)
        self._seconds += timed_turn(self._prepared, SystemClock(), max(calls, 1)).cpu_s

    @_in("1 if different")
    def track_different_decision(self, cells: Cells, variant: str, problem: str) -> float:
        """Return 1 if the decision is not the required one, else 0; NaN if none is required.

        A wrong decision is 1 because asv reports an increase as a regression.
        """
        decision = self.cell(cells, variant, problem).decision
        return {"different": 1.0, "same": 0.0}.get(decision or "", math.nan)

    @_in("ratio of CPU time")
    def track_ratio_to_reference(
        self, cells: Cells, variant: str, problem: str
    ) -> dict[str, Any] | float:
        """Return the CPU time ratios to the reference variant, as asv samples; NaN if none.

        The variant and the reference ran alternately, so that a slow spell of the machine affected
        both. asv shows the median of the ratios with a confidence interval, and NaN as n/a.
        """
        cell = self.cell(cells, variant, problem)
        if cell.decision == "different":
            raise ShardbenchError("It makes another decision, so its time says nothing.")
        reference = cells.get((self.family, cell.reference, problem))
        if isinstance(reference, ShardbenchError) and not isinstance(reference, NotApplicable):
            raise reference
        if not isinstance(reference, Cell) or not cell.ratio or not cell.cpu_s:
            return math.nan
        theirs = reference.cpu_s.samples if reference.cpu_s else ()
        pairs = zip(cell.cpu_s.samples, theirs, strict=False)
        # Four significant digits, since asv shows all of them.
        ratios = [float(f"{mine / their:.4g}") for mine, their in pairs if their]
        return {"samples": ratios, "number": 1} if ratios else math.nan

    @_in("calls")
    def track_python_calls(self, cells: Cells, variant: str, problem: str) -> float:
        """Return the number of Python and built-in calls in one planning call, after warm-up.

        It is NaN if the call is in another process, or takes too long.
        """
        work = self.cell(cells, variant, problem).work
        return work.python_calls if work else math.nan


def tracking(figure: str, unit: str) -> Callable[..., float]:
    """Return a benchmark that reports a quality or a counter of the call made for the check."""

    @_in(unit)
    def track(self: FamilyBenchmarks, cells: Cells, variant: str, problem: str) -> float:
        cell = self.cell(cells, variant, problem)
        figures: dict[str, float] = {**cell.counters, **cell.quality}
        return figures.get(figure, math.nan)  # a commit may lack the figure

    return track


def request_of(family: Family[Any, Any], problem: str, variants: tuple[str, ...] = ()) -> Request:
    """Return the request for a problem's id. Raise UsageError if the id is unknown."""
    parsed = ProblemId.parse(problem)
    topology = placed_on(family, parsed.workload, parsed.topology, parsed.gpus)
    return Request(family, parsed.workload, topology, variants)


def compared(
    registry: Callable[[], Registry], name: str, outline: Outline, problem: str
) -> dict[str, Cell | ShardbenchError]:
    """Return the cell of each variant, or the error of the family, problem or variant.

    What the commit lacks, or what is not installed or not applicable, is a NotApplicable.
    """
    family = None
    missing = NotApplicable("This commit has no such variant.")
    outcomes: dict[str, Cell | ShardbenchError] = dict.fromkeys(outline.variants, missing)
    try:
        family = registry().find(name)
        known = tuple(variant for variant in outline.variants if variant in family.variants)
        for cell in Comparison(request_of(family, problem, known), _SETTINGS, registry).run():
            outcomes[cell.variant] = cell
            if cell.status in ("not installed", "not applicable"):
                outcomes[cell.variant] = NotApplicable(f"{cell.status}: {cell.reason}")
            elif cell.status != "ok":
                outcomes[cell.variant] = ShardbenchError(f"{cell.status}: {cell.reason}")
    except Exception as error:  # a family may raise anything
        is_later = (
            isinstance(error, UnknownName) if family is None else (problem not in family.benchmarks)
        )
        kind = NotApplicable if is_later else ShardbenchError
        return dict.fromkeys(outline.variants, kind(f"{type(error).__name__}: {error}"))
    return outcomes


# asv identifies a cache by the first line of its function, so each family has its own line.
_CACHES: dict[str, Callable[[FamilyBenchmarks], Cells]] = {
    "dimspec": lambda suite: suite.cells(),
    "dtensor": lambda suite: suite.cells(),
    "embedding": lambda suite: suite.cells(),
    "experts": lambda suite: suite.cells(),
    "reshard": lambda suite: suite.cells(),
}


def _shared_cache(suite: FamilyBenchmarks) -> Cells:
    return suite.cells()


def benchmark_classes(
    registry: Callable[[], Registry], outlines: Mapping[str, Outline]
) -> dict[str, type[FamilyBenchmarks]]:
    """Create a benchmark class for each family, by the class name that asv shows.

    Each family of this project has its own asv cache. Families of other packages share one cache.
    """
    shared = {family: outline for family, outline in outlines.items() if family not in _CACHES}
    classes = {}
    for family, outline in outlines.items():
        named = outline.figures.items()
        figures = {f"track_{_identifier(name)}": tracking(name, unit) for name, unit in named}
        members = {
            "__doc__": f"Benchmarks of the family '{family}'.",
            "registry": registry,
            "outlines": {family: outline} if family in _CACHES else shared,
            "family": family,
            "params": (outline.variants, outline.problems),
            "setup_cache": _CACHES.get(family, _shared_cache),
            **figures,
        }
        name = _identifier(family)
        classes[name] = type(name, (FamilyBenchmarks,), members)
    return classes


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)  # asv takes the text after a hyphen for a parameter


def outlines(registry: Registry) -> Mapping[str, Outline]:
    """Return the outlines of the installed families by name; note the others on standard error.

    asv identifies a cell by its index among the parameters. If each commit used its own parameters,
    an added variant would shift the indices and put times under wrong names. So all commits use the
    outlines of the commit at which asv discovers the suite. Discovery writes them to the file that
    the environment variable names; later processes read that file.

    Raise RegistryError if a family cannot be loaded: asv must not pass without its benchmarks.
    """
    file = Path(os.environ.get(OUTLINE_FILE, os.devnull))
    if file.is_file():
        return json.decode(file.read_bytes(), type=dict[str, Outline])
    for name, reason in registry.failures.items():
        raise RegistryError(f"Family '{name}' could not be loaded: {reason}")
    made = {}
    for family in registry.families:
        missing = [variant.missing() for variant in family.variants.values()]
        if all(missing):
            _note(f"Family '{family.name}' is not installed: it needs {', '.join(missing[0])}.")
            continue
        variants, problems = tuple(family.variants), family.benchmarks
        figures = {quality.name: quality.unit for quality in family.qualities}
        figures |= {counter.name: "count" for counter in family.counters}
        if _IS_SMOKE_TEST:
            variants, problems, figures = variants[:2], problems[:1], dict([*figures.items()][:1])
        made[family.name] = Outline(variants, problems, figures)
    file.write_bytes(json.encode(made))
    return made


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")  # `asv --show-stderr` shows it


_REGISTRY = load_registry()
globals().update(benchmark_classes(load_registry, outlines(_REGISTRY)))

if sys.argv[1:2] == ["run_server"]:  # asv forks all benchmarks from this process
    for _module in [module for family in _REGISTRY.families for module in family.modules]:
        try:
            importlib.import_module(_module)
        except Exception as error:  # the checks of the module's variants fail with it too
            _note(f"Module '{_module}' could not be imported: {error}")
