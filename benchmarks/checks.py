"""One checked call for each cell, whose figures all benchmarks of the cell share."""

from collections.abc import Mapping
from typing import Any

from benchmarks.outline import Outline
from harness.contract import Family
from harness.contract.registry import Registry
from harness.measuring.check import Checked, check
from harness.measuring.timing.clock import SystemClock
from harness.model.ids import ProblemId
from harness.topologies.lookup import placed_on

# By family, variant and problem: what the checked call showed, or in words why there is nothing.
Checks = Mapping[tuple[str, str, str], Checked | str]


def build(family: Family[Any, Any], problem: str) -> Any:
    """Build a problem from its id; raises UsageError where the id names nothing."""
    parsed = ProblemId.parse(problem)
    topology = placed_on(family, parsed.workload, parsed.topology, parsed.gpus)
    return family.work.build(parsed.workload, topology)


def check_all(registry: Registry, outlines: Mapping[str, Outline]) -> Checks:
    """Check every cell; one that cannot be checked never stands in the way of the others."""
    checks: dict[tuple[str, str, str], Checked | str] = {}
    for name, outline in outlines.items():
        for problem in outline.problems:
            found = _check_problem(registry, name, outline.variants, problem)
            checks.update({(name, variant, problem): each for variant, each in found.items()})
    return checks


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
    """Return 1 where a variant decides otherwise than it must, 0 where it decides the same.

    It is compared with the nearest variant along `same_as` that passed its check; NaN where there
    is none.
    """
    checked = checks[family.name, variant, problem]
    for model in family.models_of(family.find(variant)):
        expected = checks.get((family.name, model.name, problem))
        if isinstance(expected, Checked) and isinstance(checked, Checked):
            return int(checked.fingerprint != expected.fingerprint)
    return float("nan")


def value_of(figure: str, checked: Checked) -> float:
    """Return a quality or a counter; NaN where this commit has none of that name."""
    return {**checked.counters, **checked.quality}.get(figure, float("nan"))
