"""A made-up family, and its asv suite."""

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
    family.decider("after-impossible", same_as="impossible")(lambda problem: problem)
    family.decider("fails-in-a-call", same_as="reference")(lambda problem: int("unlucky"))
    family.variant("not-installed", requires=("a_module_that_does_not_exist",))(lambda problem: 0)
    measured = Measured(12, wall_s=0.5, cpu_s=0.25)
    family.variant("elsewhere")(lambda problem: Prepared(lambda: measured))

    @family.variant("raises", same_as="reference")
    def raises(problem: int) -> Prepared[int]:
        raise OSError("out of dice")

    @family.variant("not-applicable", same_as="reference")
    def not_applicable(problem: int) -> Prepared[int]:
        raise NotApplicable("It needs eight sides.")

    return family


def suite_of(*members: Family[int, int], **failures: str) -> dict[str, type[Any]]:
    """Return the suite of these families; `failures` are families that do not load."""
    registry = Registry(members)
    registry.failures.update(failures)
    return families.benchmark_classes(registry, outlines(registry))


def asv_benchmark(suite: type[Any], function: str, variant: str, cache: Any) -> Any:
    """Return a benchmark as asv makes it, with the cell of a variant selected."""
    benchmark = _get_benchmark(function, families, suite, getattr(suite, function))
    variants, problems = benchmark._params
    benchmark.set_param_idx(list(variants).index(variant) * len(problems))
    benchmark.set_cache(cache)
    return benchmark


def ran(benchmark: Any) -> Any:
    """Run a benchmark as asv does, and return the value in asv's results, or None for n/a."""
    value = None if benchmark.do_setup() else benchmark.do_run()
    benchmark.do_teardown()
    return None if value != value else value


Run = Callable[[str, str], Any]
