"""Made-up families, and their asv suite; child processes find the families by name."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from asv_runner.discovery import _get_benchmark

from benchmarks import families
from benchmarks.families import outlines
from harness.contract import (
    Counter,
    Family,
    InfeasibleDecision,
    Measured,
    NotApplicable,
    Prepared,
    Quality,
    Recorder,
)
from harness.contract.registry import Registry

PROBLEM = "dice[size=6]/dgx_a100_80gb:2"
UNKNOWN = "dice[size=6]/no_such_machine:2"


def made_up(name: str = "dice", log: list[str] | None = None, **changes: Any) -> Family[int, int]:
    """Return a family with numbers as problems and as decisions; `log` gets what happens."""
    note = ([] if log is None else log).append
    observed: list[Recorder] = []

    @contextmanager
    def observe(recorder: Recorder) -> Iterator[None]:
        observed.append(recorder)
        yield
        observed.clear()

    def build(workload: Any, topology: Any) -> int:
        note("built")
        return int(workload.parameters["size"]) * int(topology.gpus)

    def validate(problem: int, decision: int) -> None:
        if decision < 0:
            raise InfeasibleDecision("No dice.")

    parts: dict[str, Any] = {
        "summary": "throws dice",
        "implementation": SimpleNamespace(
            build=build,
            fingerprint=str,
            validate=validate,
            quality=lambda problem, eyes: {"eyes": eyes, "luck": eyes / problem},
            facts=lambda problem: {"size": problem},
            observe=observe,
        ),
        "qualities": (Quality("eyes", "dots", "higher"), Quality("luck")),
        "counters": (Counter("throws", ""), Counter("misses", "")),
        "benchmarks": (PROBLEM,),
    }
    family: Family[int, int] = Family(name=name, **(parts | changes))

    @contextmanager
    def installed() -> Iterator[None]:
        note("installed")
        yield
        note("removed")

    @family.variant("reference", reference=True)
    def reference(problem: int) -> Prepared[int]:
        note("prepared")

        def run() -> int:
            for recorder in observed:
                recorder.counters["throws"] += problem
            sum(range(200_000))
            return problem

        return Prepared(run, installed, close=lambda: note("closed"))

    family.decider("same", same_as="reference")(lambda problem: problem)
    family.decider("other", same_as="same")(lambda problem: problem + 1)
    family.decider("own")(lambda problem: 2 * problem)
    family.decider("impossible", same_as="reference")(lambda problem: -1)
    family.variant("not-installed", requires=("a_module_that_does_not_exist",))(lambda problem: 0)
    measured = Measured(12, wall_s=0.5, cpu_s=0.25)
    family.variant("elsewhere")(lambda problem: Prepared(lambda: measured))

    @family.variant("not-applicable", same_as="reference")
    def not_applicable(problem: int) -> Prepared[int]:
        raise NotApplicable("It needs eight sides.")

    return family


def dice() -> Registry:
    """Return the registry with the family."""
    return Registry([made_up(benchmarks=(UNKNOWN, PROBLEM))])


def older() -> Registry:
    """Return the registry of an earlier commit: it lacks variants, and a family fails to load."""
    family = made_up()
    del family.variants["same"], family.variants["other"]
    registry = Registry([family])
    registry.failures["cards"] = "No module named 'cards'"
    return registry


def suite_of(registry: Callable[[], Registry]) -> dict[str, type[Any]]:
    """Return the suite of a registry's families."""
    return families.benchmark_classes(registry, outlines(registry()))


def asv_benchmark(suite: type[Any], function: str, cell: tuple[str, str], cache: Any) -> Any:
    """Return a benchmark as asv makes it, with the cell of a variant and a problem selected."""
    benchmark = _get_benchmark(function, families, suite, getattr(suite, function))
    variants, problems = map(list, benchmark._params)
    variant, problem = cell
    benchmark.set_param_idx(variants.index(variant) * len(problems) + problems.index(problem))
    benchmark.set_cache(cache)
    return benchmark


def ran(benchmark: Any) -> Any:
    """Run a benchmark as asv does, and return the value in asv's results, or None for n/a."""
    value = None if benchmark.do_setup() else benchmark.do_run()
    benchmark.do_teardown()
    return None if value != value else value
