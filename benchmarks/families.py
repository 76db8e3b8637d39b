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
from harness.contract import Family, Prepared, Quality
from harness.contract.registry import Registry, load_registry
from harness.measuring.jobs import Checked, check
from harness.measuring.timing.sampling import SamplingRequest, Times, count_work, sample
from harness.measuring.timing.turns import SystemClock, timed_turn
from harness.measuring.timing.ways import Timing
from harness.model.errors import (
    NotApplicable,
    RegistryError,
    ShardbenchError,
    UnknownName,
    UsageError,
)
from harness.model.ids import ProblemId
from harness.model.settings import SamplingRule
from harness.topologies.lookup import placed_on

# The least duration of a sample. Shorter calls are repeated, so that the clock can resolve them.
_SAMPLE_SECONDS = 0.02
_MOST_CALLS = 1000
# Sixteen pairs if calls are short. asv calls a `track_` function once per cell, not per round.
_RATIOS = SamplingRule(seconds=2.0, least_blocks=8, most_blocks=8, warmup_seconds=1.0)

F = TypeVar("F", bound=Callable[..., Any])

# The checked call, or the error, by (family, variant, problem); n/a if it is a NotApplicable.
Checks = Mapping[tuple[str, str, str], Checked | ShardbenchError]


class Outline(Struct, frozen=True):
    """The variants and problems of a family, asv's two parameters, and the figures to track."""

    variants: tuple[str, ...]
    problems: tuple[str, ...]
    figures: tuple[Quality, ...]


def _in(unit: str, less_is_better: bool = True) -> Callable[[F], F]:
    """Return a decorator that tells asv the unit of a benchmark, and which values are better."""

    def add(function: F) -> F:
        vars(function).update(unit=unit, less_is_better=less_is_better)
        return function

    return add


class FamilyBenchmarks(ABC):
    """The benchmarks of one family. asv skips this class because it is abstract.

    `family` is the family's name in `registry`. `outlines` has the variants and problems of all
    families that share this class's `setup_cache`.

    asv starts a process for each benchmark, cell and round. It does not compare results of
    different versions. Increase `version` when a benchmark measures something else, that is when
    the sampling changes or when the same problem id builds a different problem.
    """

    registry: ClassVar[Registry]
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
    def setup_cache(self) -> Checks:
        """Return `check_cells()`. asv caches the result for the benchmarks of the family.

        asv identifies a cache by its function, not its class, so each cache needs its own function.
        """

    def check_cells(self) -> Checks:
        """Check the cells of all families in `outlines`; continue after a failed check."""
        return {
            (name, variant, problem): checked
            for name, outline in self.outlines.items()
            for problem in outline.problems
            for variant, checked in _check_problem(self.registry, name, outline, problem).items()
        }

    def setup(self, checks: Checks, variant: str, problem: str) -> None:
        """Raise NotImplementedError, asv's n/a, or the error of a cell that failed its check."""
        self.checked(checks, variant, problem)

    def checked(self, checks: Checks, variant: str, problem: str) -> Checked:
        """Return the checked call of a cell; raises as `setup`."""
        checked = checks[self.family, variant, problem]
        if isinstance(checked, NotApplicable):
            raise NotImplementedError(checked)  # asv then shows n/a
        if isinstance(checked, ShardbenchError):
            raise checked
        return checked

    def timer(self) -> float:
        """Return the total CPU seconds of the timed calls so far. asv uses it as its clock."""
        return self._seconds

    def time_plan(self, checks: Checks, variant: str, problem: str) -> None:
        """Time one sample of the planner, and advance `timer` by the CPU time of one call."""
        if self._prepared is None:
            family = self.registry.find(self.family)
            self._prepared = family.find(variant).prepared(build(family, problem))
            # asv exits without a call to close, but it deletes this object before it exits.
            weakref.finalize(self, self._prepared.close)
        lasts = max(self.checked(checks, variant, problem).wall_s, _SAMPLE_SECONDS / _MOST_CALLS)
        calls = math.ceil(_SAMPLE_SECONDS / lasts)
        self._seconds += timed_turn(self._prepared, SystemClock(), calls).cpu_s

    @_in("1 if different")
    def track_different_decision(self, checks: Checks, variant: str, problem: str) -> float:
        """Return 1 if the decision is not the required one, else 0; NaN if none is required.

        The required decision is that of the nearest variant along the `same_as` chain that passed
        its check. A wrong decision is 1 because asv reports an increase as a regression.
        """
        family = self.registry.find(self.family)
        checked = checks[family.name, variant, problem]
        for model in family.models_of(family.find(variant)):
            expected = checks.get((family.name, model.name, problem))
            if isinstance(expected, Checked) and isinstance(checked, Checked):
                return int(checked.fingerprint != expected.fingerprint)
        return math.nan

    @_in("ratio of CPU time")
    def track_ratio_to_reference(
        self, checks: Checks, variant: str, problem: str
    ) -> dict[str, Any] | float:
        """Return the CPU time ratios to the reference variant, as asv samples; NaN if none.

        The variant and the reference run alternately, so that a slow spell of the machine affects
        both. asv shows the median of the ratios with a confidence interval, and NaN as n/a.
        """
        family = self.registry.find(self.family)
        reference = family.reference.name
        if variant == reference or isinstance(
            checks[family.name, reference, problem], NotApplicable
        ):
            return math.nan
        self.checked(checks, reference, problem)
        if self.track_different_decision(checks, variant, problem) == 1:
            raise ShardbenchError("It makes another decision, so its time says nothing.")
        built = build(family, problem)
        prepared = {name: family.find(name).prepared(built) for name in (reference, variant)}
        try:
            times = sample(Timing(prepared), SamplingRequest(reference, _RATIOS))[variant]
            ratios = times.ratios_to(times.reference or Times())
        except ValueError:  # too short for the clock
            return math.nan
        finally:
            for side in prepared.values():
                side.close()
        # Four significant digits, since asv shows all of them.
        return {"samples": [float(f"{ratio:.4g}") for ratio in ratios], "number": 1}

    @_in("calls")
    def track_python_calls(self, checks: Checks, variant: str, problem: str) -> float:
        """Return the number of Python and built-in calls in one planning call, after warm-up.

        It is NaN if the planning call is in another process.
        """
        self.checked(checks, variant, problem)
        family = self.registry.find(self.family)
        prepared = family.find(variant).prepared(build(family, problem))
        try:
            if timed_turn(prepared, SystemClock(), 2).thread_cpu_s is None:
                return math.nan
            return count_work(prepared, False).python_calls
        finally:
            prepared.close()


def tracking(figure: Quality) -> Callable[..., float]:
    """Return a benchmark that reports a quality or a counter of the call made for the check."""

    @_in(figure.unit, figure.better == "lower")
    def track(self: FamilyBenchmarks, checks: Checks, variant: str, problem: str) -> float:
        checked = self.checked(checks, variant, problem)
        figures: dict[str, float] = {**checked.counters, **checked.quality}
        return figures.get(figure.name, math.nan)  # a commit may lack the figure

    return track


def build(family: Family[Any, Any], problem: str) -> Any:
    """Build a problem from its id. Raise UsageError if the id is unknown."""
    parsed = ProblemId.parse(problem)
    topology = placed_on(family, parsed.workload, parsed.topology, parsed.gpus)
    return family.work.build(parsed.workload, topology)


def _check_problem(
    registry: Registry, name: str, outline: Outline, problem: str
) -> dict[str, Checked | ShardbenchError]:
    """Return the checked call of each variant, or the error of the family, problem or variant."""
    failed: ShardbenchError
    try:
        family = registry.find(name)
    except UsageError as error:
        failed = NotApplicable(str(error)) if isinstance(error, UnknownName) else error
        return dict.fromkeys(outline.variants, failed)
    try:
        built = build(family, problem)
    except Exception as error:  # a family may raise anything
        # A problem of a later commit may be unknown at this one.
        is_known = problem in family.benchmarks
        failed = _storable(error) if is_known else NotApplicable(str(error))
        return dict.fromkeys(outline.variants, failed)
    return {variant: _check(family, variant, built) for variant in outline.variants}


def _check(family: Family[Any, Any], name: str, problem: Any) -> Checked | ShardbenchError:
    try:
        if name not in family.variants:
            raise NotApplicable("This commit has no such variant.")
        variant = family.find(name)
        if missing := variant.missing():
            raise NotApplicable(f"Not installed: it needs {', '.join(missing)}.")
        return check(family, variant, problem, SystemClock())
    except Exception as error:  # a variant may raise anything
        return _storable(error)


def _storable(error: Exception) -> ShardbenchError:
    """Return an error that asv can store, whatever the class of the original."""
    if isinstance(error, NotApplicable):
        return NotApplicable(str(error))
    return ShardbenchError(f"{type(error).__name__}: {error}")


_SMOKE = "SHARDBENCH_ASV_SMOKE"
"""Set for a smoke test: only the first two variants of each family, on its first problem."""

# asv identifies a cache by the first line of its function, so each family has its own line.
_CACHES: dict[str, Callable[[FamilyBenchmarks], Checks]] = {
    "dimspec": lambda suite: suite.check_cells(),
    "dtensor": lambda suite: suite.check_cells(),
    "embedding": lambda suite: suite.check_cells(),
    "experts": lambda suite: suite.check_cells(),
    "reshard": lambda suite: suite.check_cells(),
}


def _shared_cache(suite: FamilyBenchmarks) -> Checks:
    return suite.check_cells()


def benchmark_classes(
    registry: Registry, outlines: Mapping[str, Outline]
) -> dict[str, type[FamilyBenchmarks]]:
    """Create a benchmark class for each family, by the class name that asv shows.

    Each family of this project has its own asv cache. Families of other packages share one cache.
    """
    shared = {family: outline for family, outline in outlines.items() if family not in _CACHES}
    classes = {}
    for family, outline in outlines.items():
        members = {
            "__doc__": f"Benchmarks of the family '{family}'.",
            "registry": registry,
            "outlines": {family: outline} if family in _CACHES else shared,
            "family": family,
            "params": (outline.variants, outline.problems),
            "setup_cache": _CACHES.get(family, _shared_cache),
            **{f"track_{_identifier(figure.name)}": tracking(figure) for figure in outline.figures},
        }
        name = _identifier(family)
        classes[name] = type(name, (FamilyBenchmarks,), members)
    return classes


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)  # asv takes the text after a hyphen for a parameter


def outlines(registry: Registry) -> Mapping[str, Outline]:
    """Return the outline of each family, by the family's name.

    asv identifies a cell by its index among the parameters. If each commit used its own parameters,
    an added variant would shift the indices and put times under wrong names. So all commits use the
    outlines of the commit at which asv discovers the suite. Discovery writes them to the file that
    the environment variable names; later processes read that file.
    """
    name = os.environ.get(OUTLINE_FILE)
    if name is None:
        return registered(registry)
    file = Path(name)
    if not file.exists():
        file.write_bytes(json.encode(registered(registry)))
    return json.decode(file.read_bytes(), type=dict[str, Outline])


def registered(registry: Registry) -> Mapping[str, Outline]:
    """Return the outlines of the installed families; report the others on standard error.

    Raise RegistryError if a family cannot be loaded: asv must not pass without its benchmarks.
    """
    families, registered = registry.families, {}
    for name, reason in registry.failures.items():
        raise RegistryError(f"Family '{name}' could not be loaded: {reason}")
    for family in families:
        missing = [variant.missing() for variant in family.variants.values()]
        if all(missing):
            _note(f"Family '{family.name}' is not installed: it needs {', '.join(missing[0])}.")
            continue
        variants, problems = tuple(family.variants), family.benchmarks
        if os.environ.get(_SMOKE):
            variants, problems = variants[:2], problems[:1]
        counters = (Quality(counter.name, "count") for counter in family.counters)
        registered[family.name] = Outline(variants, problems, (*family.qualities, *counters))
    return registered


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")  # `asv --show-stderr` shows it


_REGISTRY = load_registry()
globals().update(benchmark_classes(_REGISTRY, outlines(_REGISTRY)))

if sys.argv[1:2] == ["run_server"]:  # asv forks all benchmarks from this process
    for _module in [module for family in _REGISTRY.families for module in family.modules]:
        try:
            importlib.import_module(_module)
        except Exception as error:  # the checks of the module's variants fail with it too
            _note(f"Module '{_module}' could not be imported: {error}")
