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
Run = Callable[[str, str], Any]
"""Runs a benchmark of a variant, and returns the value in asv's results, or None."""


class Log:
    """A list of the variants' actions, in order."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.recorder: Recorder | None = None


def luck(problem: int, eyes: int) -> dict[str, float]:
    return {"eyes": eyes, "luck": eyes / problem}


def made_up(
    name: str = "dice",
    log: Log | None = None,
    quality: Callable[[int, int], dict[str, float]] = luck,
    **changes: Any,
) -> Family[int, int]:
    """Return a family with numbers as problems and as decisions."""
    log = log or Log()

    @contextmanager
    def observe(recorder: Recorder) -> Iterator[None]:
        log.recorder = recorder
        yield
        log.recorder = None

    def build(workload: Any, topology: Any) -> int:
        log.entries.append("built")
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
            quality=quality,
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
        log.entries.append("installed")
        yield
        log.entries.append("removed")

    @family.variant("reference", reference=True)
    def reference(problem: int) -> Prepared[int]:
        log.entries.append("prepared")

        def run() -> int:
            if log.recorder is not None:
                log.recorder.counters["throws"] += problem
            sum(range(200_000))
            return problem

        return Prepared(run, installed, close=lambda: log.entries.append("closed"))

    family.decider("same", same_as="reference")(lambda problem: problem)
    family.decider("other", same_as="same")(lambda problem: problem + 1)
    family.decider("own")(lambda problem: 2 * problem)
    family.decider("impossible", same_as="reference")(lambda problem: -1)
    family.decider("after-impossible", same_as="impossible")(lambda problem: problem)
    family.variant("not-installed", requires=("a_module_that_does_not_exist",))(lambda problem: 0)

    @family.variant("elsewhere")
    def elsewhere(problem: int) -> Prepared[int]:
        return Prepared(lambda: Measured(problem, wall_s=0.5, cpu_s=0.25))

    @family.variant("raises", same_as="reference")
    def raises(problem: int) -> Prepared[int]:
        raise OSError("out of dice")

    @family.variant("fails-in-a-call", same_as="reference")
    def fails_in_a_call(problem: int) -> Prepared[int]:
        return Prepared(lambda: problem // int("unlucky"))

    @family.variant("not-applicable", same_as="reference")
    def not_applicable(problem: int) -> Prepared[int]:
        raise NotApplicable("It needs eight sides.")

    return family


def suite_of(*members: Family[int, int]) -> dict[str, type[Any]]:
    registry = Registry(members)
    return families.benchmark_classes(registry, outlines(registry))


def asv_benchmark(suite: type[Any], function: str, variant: str, cache: Any) -> Any:
    """Return a benchmark as asv makes it, with the cell of a variant selected."""
    benchmark = _get_benchmark(function, families, suite, getattr(suite, function))
    variants, problems = benchmark._params
    benchmark.set_param_idx(list(variants).index(variant) * len(problems))
    benchmark.set_cache(cache)
    return benchmark
