"""A plan is compared with the plan that the family's planner makes of the problem today."""

import signal
import time
from contextlib import suppress
from dataclasses import replace

import pytest
import toy

from harness.contract import Abilities, Family, InfeasibleDecision, Prepared
from harness.measuring.request import Request
from harness.model.ids import WorkloadSpec
from harness.planning.plan import Baseline, baseline, plan
from harness.topologies.lookup import find_topology

TOPOLOGY = find_topology("dgx_a100_80gb", 2)


def named(family: Family, planner: str, variant: str) -> Family:
    """Return the family with a planner to compare with, which decides as a variant does."""
    planning = replace(family.abilities.planning, baseline=lambda problem: (planner, variant))
    return replace(family, abilities=Abilities(planning=planning))


@pytest.fixture
def family() -> Family:
    (found,) = toy.bounded_registry().families
    return named(found, "Toys", "same")


def compared(family: Family, variant: str = "own", **options) -> Baseline | None:
    request = Request(family, WorkloadSpec("toy", {"size": "5"}), TOPOLOGY, (variant,))
    return baseline(request, plan(request), **options)


def decide(family: Family, name: str, run) -> None:
    """Let a variant decide by this function."""
    family.variants[name] = replace(family.variants[name], prepare=lambda _: Prepared(run))


def never() -> None:
    raise AssertionError("it was called")


def test_the_variant_that_the_family_names_plans(family: Family):
    """The named variant stands for the planner; its model is not called."""
    decide(family, "reference", never)
    stages: list[str] = []
    assert compared(family, begins=stages.append) == Baseline("Toys", 3.0)
    assert stages == ["planning with same"]


def test_its_model_plans_where_it_is_not_installed(family: Family):
    """The variant that it must reproduce plans, if the named variant is not installed."""
    family.variants["same"] = replace(family.variants["same"], requires=(toy.NOT_THERE,))
    assert compared(family) == Baseline("Toys", 3.0)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (InfeasibleDecision("nothing fits"), "Toys finds no plan."),
        (
            KeyError(),
            "Toys's own plan is unknown: 'same' found no decision: KeyError",
        ),
    ],
)
def test_without_a_plan_of_the_planner_the_reason_is_told(family: Family, error, reason):
    """It may find none, or fail."""

    def fail() -> None:
        raise error

    decide(family, "same", fail)
    assert compared(family) == Baseline("Toys", None, reason)


def test_a_release_that_takes_too_long_is_stopped_even_if_it_catches_errors(family: Family):
    closed = []

    def endless() -> None:
        while True:
            with suppress(Exception):
                time.sleep(60)

    family.variants["same"] = replace(
        family.variants["same"],
        prepare=lambda _: Prepared(endless, close=lambda: closed.append(True)),
    )
    before = signal.getsignal(signal.SIGALRM)
    found = compared(family, seconds=0.02)
    assert found == Baseline("Toys", None, "Toys finds no plan within 0 s.")
    assert closed == [True]
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_there_is_none_without_a_planner_or_near_another_plan(family: Family):
    """Nothing is compared if the family names no planner, or if the plan had to move little."""
    (plain,) = toy.bounded_registry().families
    assert compared(plain) is None
    request = Request(family, WorkloadSpec("toy", {"size": "5"}), TOPOLOGY, ("own",))
    assert baseline(request, replace(plan(request), moved_gib=1.0)) is None
