"""Registries with the toy family, unchanged or changed."""

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toy import TOY, Decision, ToyProblem, quality, round_robin, with_work

from harness.contract import (
    OTHERS,
    Abilities,
    Family,
    Planning,
    Prepared,
    Quality,
    RankTable,
    Statement,
    Study,
    WorkloadSpec,
)
from harness.contract.registry import Registry
from harness.model.cell import ClockName

SMALL = "toy[size=4]/dgx_a100_80gb:2"


def toy_registry() -> Registry:
    return Registry([TOY])


def _toy(**changes: Any) -> Family[ToyProblem, Decision]:
    return replace(TOY, variants=dict(TOY.variants), **changes)


def slow_reference_registry() -> Registry:
    """Return a registry with the family and a reference that never returns."""
    family = _toy()
    silent = TOY.variants["silent"].prepare
    family.variants["reference"] = replace(family.variants["reference"], prepare=silent)
    return Registry([family])


def _slow_quality(problem: ToyProblem, decision: Decision) -> Mapping[str, float]:
    time.sleep(0.7)
    return quality(problem, decision)


def slow_quality_registry() -> Registry:
    """Return a registry with the family and a quality that takes longer than the decision."""
    return Registry([with_work(_toy(), quality=_slow_quality)])


def _label(workload: WorkloadSpec) -> WorkloadSpec:
    return WorkloadSpec(workload.name.upper(), workload.parameters)


def labelled_registry() -> Registry:
    """Return a registry with the family and workloads with other names in ids than as given."""
    return Registry([_toy(label=_label)])


def preloading_registry(module: str) -> Registry:
    """Return a registry with the family and a module that is imported before children fork."""
    return Registry([_toy(preload=(module,))])


def _bounded_quality(problem: ToyProblem, decision: Decision) -> Mapping[str, float]:
    return {**quality(problem, decision), "least": problem.size / problem.gpus}


def _document(problem: ToyProblem, decision: Decision) -> Mapping[str, Any]:
    return {"gpu_of_item": decision}


def _ranks(problem: ToyProblem, decision: Decision) -> RankTable:
    dealt = [decision.count(gpu) for gpu in range(problem.gpus)]
    rows = tuple((amount, amount / 8) for amount in dealt)
    return RankTable(("items", "GiB"), rows, (None, 80.0), "items")


def _limited(problem: ToyProblem, seconds: float) -> ToyProblem:
    problem.leave("limit", f"{seconds:g}")
    return problem


def bounded_registry() -> Registry:
    """Return a registry with the family, a bound, a study against `same`, goals, and planning."""
    least = Quality("least", "items", "higher", "what must be on one", bounds="fullest")
    family = _toy(
        qualities=(*TOY.qualities, least),
        studies=(
            Study(SMALL, ("own",), "against another", against="same"),
            Study("toy[size=6]/dgx_a100_80gb:2", ("same",), "large", large=True),
        ),
        statements=(
            Statement("goal", "own is even", SMALL, OTHERS, "own", "fullest", at_most=1),
            Statement("goal", "own is quick", SMALL, "", "own", "seconds", at_most=9),
            Statement("goal", "same is quick", SMALL, "reference", "same", at_least=1),
        ),
        abilities=Abilities(planning=Planning("same", _document, _ranks, _limited)),
    )
    return Registry([with_work(family, quality=_bounded_quality)])


_FIGURES: dict[str, float] = {}


def figures(problem: ToyProblem, known: Mapping[str, float]) -> Mapping[str, float]:
    """Return the bound; if it has to be computed, record that in the problem's folder."""
    if not known and problem.folder is not None:
        with (problem.folder / "worked-out").open("a") as file:
            file.write(f"{os.getpid()}\n")
    _FIGURES.update(known or {"least": problem.size / problem.gpus})
    return _FIGURES


def _no_figures(problem: ToyProblem, known: Mapping[str, float]) -> Mapping[str, float]:
    raise KeyError("nothing")


def _quality_with_figures(problem: ToyProblem, decision: Decision) -> Mapping[str, float]:
    least = (_FIGURES or figures(problem, {}))["least"]
    return {**quality(problem, decision), "least": least}


def figures_registry(of: Any = figures) -> Registry:
    """Return a registry with the family and a bound that is computed once per problem."""
    (bounded,) = bounded_registry().families
    family = replace(bounded, abilities=replace(bounded.abilities, figures=of))
    return Registry([with_work(family, quality=_quality_with_figures)])


def no_figures_registry() -> Registry:
    """Return `figures_registry` with a computation of the bound that fails before the checks."""
    return figures_registry(_no_figures)


def _waits(problem: ToyProblem) -> Prepared[Decision]:
    """Return a variant that waits 20 ms, as for an answer from a network."""
    return Prepared(lambda: time.sleep(0.02) or round_robin(problem))


def waiting_registry(clock: ClockName) -> Registry:
    """Return a registry with the family and a variant that waits; `clock` is the family's."""
    family = _toy(clock=clock)
    family.variant("waits", same_as="reference")(_waits)
    return Registry([family])
