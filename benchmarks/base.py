"""The benchmarks that every family has: planning time, quality, counters and decisions.

A cell that is not installed, or fails its check, is n/a.
"""

import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from benchmarks.outline import Outline
from harness.contract import Family, Prepared, Quality
from harness.contract.registry import Registry
from harness.measuring.check import Checked, check
from harness.measuring.counting import count_work
from harness.measuring.timing.clock import SystemClock
from harness.measuring.timing.sampling import SamplingRequest, sample
from harness.measuring.timing.times import Times
from harness.measuring.timing.turns import timed_turn
from harness.model.ids import ProblemId
from harness.model.settings import SamplingRule
from harness.topologies.lookup import placed_on

# A sample lasts about this long at least, by repeating a short call, so that the clock resolves it.
_SAMPLE_SECONDS = 0.02
_MOST_CALLS = 1000
# Sixteen pairs where calls are short; asv calls this once a cell, whatever its rounds.
_RATIOS = SamplingRule(seconds=2.0, least_blocks=8, most_blocks=8, warmup_seconds=1.0)

F = TypeVar("F", bound=Callable[..., Any])

# The checked call by family, variant and problem, or the reason why there is none.
Checks = Mapping[tuple[str, str, str], Checked | str]


def _with_attributes(**attributes: Any) -> Callable[[F], F]:
    """Give a function the attributes that asv describes its benchmark with."""

    def add(function: F) -> F:
        vars(function).update(attributes)
        return function

    return add


class FamilyBenchmarks(ABC):
    """The benchmarks of one family. asv passes over this class, since it is abstract.

    `registry` and `family` name the family. `outlines` are those of all families in the cache: its
    own, and others where they share one.

    asv starts a process for each benchmark, cell and round. Results of different versions are not
    compared: raise `version` when a benchmark measures something else than before, that is when
    the sampling changes or a problem is built differently under the same id.
    """

    registry: ClassVar[Registry]
    outlines: ClassVar[Mapping[str, Outline]]
    family: ClassVar[str]
    params: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]]
    param_names = ("variant", "problem")
    version = "2"

    # Eight samples a side: asv's test cannot find a difference with six, which its defaults can
    # come to. They are taken in four rounds, since a slow spell of the machine spoils a whole one.
    rounds = 4
    repeat = 2
    # Above zero, so that one call goes before the samples.
    warmup_time = 0.001

    def __init__(self) -> None:
        self._seconds = 0.0
        self._prepared: Prepared[Any] | None = None

    @abstractmethod
    def setup_cache(self) -> Checks:
        """Return `check_cells()`, in a function that only families with one cache share.

        asv knows a cache by the function that makes it, not by its class.
        """

    def check_cells(self) -> Checks:
        """Check the cells of all families in `outlines`; a failed check stops no other."""
        checks: dict[tuple[str, str, str], Checked | str] = {}
        for name, outline in self.outlines.items():
            for problem in outline.problems:
                found = _check_problem(self.registry, name, outline.variants, problem)
                checks |= {(name, variant, problem): check for variant, check in found.items()}
        return checks

    def setup(self, checks: Checks, variant: str, problem: str) -> None:
        """Skip a cell that was not checked."""
        self._checked(checks, variant, problem)

    def timer(self) -> float:
        """Return the CPU seconds of all turns so far: a clock that stops between turns."""
        return self._seconds

    def time_plan(self, checks: Checks, variant: str, problem: str) -> None:
        """Take one turn, and add its CPU time to `timer`."""
        if self._prepared is None:
            family = self.registry.find(self.family)
            self._prepared = family.find(variant).prepared(build(family, problem))
            # asv ends the process without notice, but drops this object before.
            weakref.finalize(self, self._prepared.close)
        lasts = max(self._checked(checks, variant, problem).wall_s, _SAMPLE_SECONDS / _MOST_CALLS)
        calls = math.ceil(_SAMPLE_SECONDS / lasts)
        self._seconds += timed_turn(self._prepared, SystemClock(), calls).cpu_s

    @_with_attributes(unit="1 if different", less_is_better=True)
    def track_different_decision(self, checks: Checks, variant: str, problem: str) -> float:
        """Return 1 if the decision is not the required one, else 0; NaN where none is required.

        A wrong decision is 1 because asv takes any rise of a tracked value for the worse.
        """
        return is_different(checks, self.registry.find(self.family), variant, problem)

    @_with_attributes(unit="ratio of CPU time", less_is_better=True)
    def track_ratio_to_reference(
        self, checks: Checks, variant: str, problem: str
    ) -> dict[str, Any] | float:
        """Return the ratios of pairs of turns with the reference, which asv keeps as samples.

        Both run here in turns, so that a slow spell of the machine affects both. For a commit, asv
        shows their median with its own interval. NaN, asv's n/a, where there is no ratio.
        """
        family = self.registry.find(self.family)
        reference = family.reference.name
        if variant == reference or not isinstance(checks[family.name, reference, problem], Checked):
            return math.nan
        if is_different(checks, family, variant, problem) == 1:
            return math.nan
        samples = pair_ratios(family, variant, build(family, problem))
        return {"samples": samples, "number": 1} if samples else math.nan

    @_with_attributes(unit="calls", less_is_better=True)
    def track_python_calls(self, checks: Checks, variant: str, problem: str) -> float:
        """Return how many Python and built-in functions one call calls, after two to warm up."""
        self._checked(checks, variant, problem)
        family = self.registry.find(self.family)
        return python_calls(family.find(variant).prepared(build(family, problem)))

    def _checked(self, checks: Checks, variant: str, problem: str) -> Checked:
        found = checks[self.family, variant, problem]
        if isinstance(found, Checked):
            return found
        raise NotImplementedError(found)  # asv's word for n/a


def pair_ratios(family: Family[Any, Any], variant: str, problem: Any) -> list[float]:
    """Time a variant and its family's reference in turns; return the ratio of each pair.

    Ratios are rounded to four digits, since asv shows all digits.
    """
    reference = family.reference.name
    prepared = {name: family.find(name).prepared(problem) for name in (reference, variant)}
    try:
        request = SamplingRequest(prepared, reference, _RATIOS, may_fork=True)
        times = sample(request)[variant]
    finally:
        for variant_prepared in prepared.values():
            variant_prepared.close()
    try:
        ratios = times.ratios_to(times.reference or Times())
    except ValueError:  # too short for the clock
        return []
    return [float(f"{ratio:.4g}") for ratio in ratios]


def python_calls(prepared: Prepared[Any]) -> float:
    """Count the calls that one call makes, and close it; NaN where it runs in another process."""
    try:
        turn = timed_turn(prepared, SystemClock(), 2)
        return math.nan if turn.thread_cpu_s is None else count_work(prepared, False).python_calls
    finally:
        prepared.close()


def tracking(figure: Quality) -> Callable[..., float]:
    """Return the benchmark of a quality or a counter, taken from the checked call."""

    @_with_attributes(unit=figure.unit, less_is_better=figure.better == "lower")
    def track(self: FamilyBenchmarks, checks: Checks, variant: str, problem: str) -> float:
        checked = self._checked(checks, variant, problem)
        figures: dict[str, float] = {**checked.counters, **checked.quality}
        return figures.get(figure.name, math.nan)  # a commit may lack the figure

    return track


def build(family: Family[Any, Any], problem: str) -> Any:
    """Build a problem from its id; raises UsageError where the id names nothing."""
    parsed = ProblemId.parse(problem)
    topology = placed_on(family, parsed.workload, parsed.topology, parsed.gpus)
    return family.work.build(parsed.workload, topology)


def _check_problem(
    registry: Registry, name: str, variants: tuple[str, ...], problem: str
) -> dict[str, Checked | str]:
    try:
        family = registry.find(name)
        built = build(family, problem)
    except Exception as error:  # a family may raise anything
        return dict.fromkeys(variants, _reason(error))
    return {variant: _check_variant(family, variant, built) for variant in variants}


def _check_variant(family: Family[Any, Any], name: str, problem: Any) -> Checked | str:
    try:
        variant = family.find(name)
        if missing := variant.missing():
            return f"Not installed: it needs {', '.join(missing)}."
        return check(family, variant, problem, SystemClock())
    except Exception as error:  # a variant may raise anything
        return _reason(error)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def is_different(checks: Checks, family: Family[Any, Any], variant: str, problem: str) -> float:
    """Return 1 where a variant decides differently from the variant that it must match, else 0.

    It is compared with the nearest variant along `same_as` that passed its check; NaN where there
    is none.
    """
    checked = checks[family.name, variant, problem]
    for model in family.models_of(family.find(variant)):
        expected = checks.get((family.name, model.name, problem))
        if isinstance(expected, Checked) and isinstance(checked, Checked):
            return int(checked.fingerprint != expected.fingerprint)
    return math.nan
