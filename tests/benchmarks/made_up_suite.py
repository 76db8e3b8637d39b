"""The toy family with few variants, and its asv suite; child processes find the family by name."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from asv_runner.discovery import _get_benchmark
from toy import TOY

from benchmarks import families
from benchmarks.families import outlines
from harness.contract import Family
from harness.contract.registry import Registry

PROBLEM = "toy[size=6]/dgx_a100_80gb:2"
UNKNOWN = "toy[size=6]/no_such_machine:2"
VARIANTS = (
    *("reference", "same", "different", "own", "infeasible", "missing", "aloof", "measured"),
)


def toys(name: str = "toy", variants: tuple[str, ...] = VARIANTS, **changes: Any) -> Family:
    """Return the toy family under a name, with some of its variants and one problem."""
    kept = {variant: TOY.variants[variant] for variant in variants}
    fields = {"variants": kept, "benchmarks": (PROBLEM,), "studies": (), **changes}
    return replace(TOY, name=name, **fields)


def current() -> Registry:
    """Return the registry with the family, and a problem that cannot be built."""
    return Registry([toys(benchmarks=(UNKNOWN, PROBLEM))])


def older() -> Registry:
    """Return the registry of an earlier commit: it lacks variants, and a family fails to load."""
    registry = Registry([toys(variants=("reference", "own"))])
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
