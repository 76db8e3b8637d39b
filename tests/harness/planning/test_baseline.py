"""A plan is compared with the plan of the release that a family's overview names."""

import signal
import time
from contextlib import suppress
from dataclasses import replace

import pytest
import toy

from harness.contract import Family, InfeasibleDecision, OverviewRow, Prepared
from harness.measuring.request import Request
from harness.model.ids import WorkloadSpec
from harness.planning.baseline import Baseline, baseline
from harness.planning.plan import plan
from harness.topologies.lookup import find_topology

TOPOLOGY = find_topology("dgx_a100_80gb", 2)
PROBLEM = "toy/dgx_a100_80gb:2"


@pytest.fixture
def family() -> Family:
    (found,) = toy.bounded_registry().families
    second = OverviewRow("Another", PROBLEM, today="own", ours="own", place=2)
    first = OverviewRow("Toys", PROBLEM, today="reference", ours="same", place=1)
    return replace(found, overview=(second, first))


def compared(family: Family, variant: str = "own", **options) -> Baseline | None:
    request = Request(family, WorkloadSpec("toy", {"size": "5"}), TOPOLOGY, (variant,))
    return baseline(request, plan(request), **options)


def decide(family: Family, name: str, run) -> None:
    """Let a variant decide by this function."""
    family.variants[name] = replace(family.variants[name], prepare=lambda _: Prepared(run))


def never() -> None:
    raise AssertionError("it was called")


def test_the_fastest_variant_with_the_same_decision_plans(family: Family):
    decide(family, "reference", never)
    stages: list[str] = []
    assert compared(family, begins=stages.append) == Baseline("Toys", 3.0)
    assert stages == ["looking for Toys's own plan"]


def test_without_it_the_release_itself_plans(family: Family):
    family.variants["same"] = replace(family.variants["same"], requires=(toy.NOT_THERE,))
    assert compared(family) == Baseline("Toys", 3.0)


def test_a_variant_with_another_decision_does_not_stand_for_it(family: Family):
    row = OverviewRow("Toys", PROBLEM, today="reference", ours="infeasible")
    assert compared(replace(family, overview=(row,))) == Baseline("Toys", 3.0)


def test_its_own_decision_is_not_made_twice(family: Family):
    decide(family, "reference", never)
    assert compared(family, "same") == Baseline("Toys", 3.0)


def test_a_release_that_finds_no_plan(family: Family):
    def nothing() -> None:
        raise InfeasibleDecision("nothing fits")

    decide(family, "same", nothing)
    assert compared(family) == Baseline("Toys", None, "planner finds no plan.")


def test_a_release_that_fails_or_is_not_there(family: Family):
    def fail() -> None:
        raise ValueError("no item likes me")

    decide(family, "same", fail)
    said = compared(family).reason
    assert said == "plan is unknown: 'same' found no decision: ValueError: no item likes me"
    for name in ("same", "reference"):
        family.variants[name] = replace(family.variants[name], requires=(toy.NOT_THERE,))
    assert compared(family).reason.startswith("plan is unknown: 'reference' is not installed")


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
    assert found == Baseline("Toys", None, "planner finds no plan within 0 s.")
    assert closed == [True]
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_there_is_none_without_a_release_or_near_another_plan(family: Family):
    assert compared(replace(family, overview=())) is None
    request = Request(family, WorkloadSpec("toy", {"size": "5"}), TOPOLOGY, ("own",))
    assert baseline(request, replace(plan(request), moved_gib=1.0)) is None
