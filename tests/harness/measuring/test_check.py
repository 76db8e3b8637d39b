"""A checked call: what is done around it, and what of its decision is kept or refused."""

import math
import weakref
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import toy
import toy_registries
from fake_clock import FakeClock

from harness.contract import Family, Prepared, is_observing
from harness.contract.variants import Variant
from harness.measuring.jobs import check
from harness.measuring.request import AFTER_CALL, CALL
from harness.model.errors import RegistryError
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import find_topology

PROBLEM = toy.build(WorkloadSpec("toy"), find_topology("dgx_a100_80gb", 2))


def variant(run, **options) -> Variant:
    def prepare(problem: toy.ToyProblem) -> Prepared[toy.Decision]:
        return Prepared(run, **options)

    return Variant("made-up", prepare, "", "")


def test_a_family_that_plans_adds_figures_for_each_rank(clock: FakeClock):
    """A checked cell has the table of ranks."""
    (family,) = toy_registries.bounded_registry().families
    checked = check(family, family.find("reference"), PROBLEM, clock)
    assert checked.ranks.rows == ((3, 3 / 8), (3, 3 / 8))


def test_garbage_of_setting_up_is_collected_before_a_timed_call(clock: FakeClock):
    """A call that gives the time is not interrupted by a collection for what came before."""

    class InACycle:
        def __init__(self) -> None:
            self.cycle = self

    left = weakref.WeakSet()

    def run() -> toy.Decision:
        assert not left
        return toy.round_robin(PROBLEM)

    renewing = variant(run, renew=lambda: left.add(InACycle()))
    check(toy.TOY, renewing, PROBLEM, clock, observed=False)


@pytest.mark.parametrize("value", [math.nan, -math.inf, None, "7", 1j, 10**400])
def test_a_quality_that_is_no_number_is_refused(clock: FakeClock, value: Any):
    """Only finite numbers can be stored and compared."""
    family = toy.with_work(toy.TOY, quality=lambda problem, decision: {"fullest": value})
    with pytest.raises(RegistryError, match=r"Quality 'fullest' of 'toy/same' is .*, not a numb"):
        check(family, toy.TOY.variants["same"], PROBLEM, clock)


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_is_observed_and_installed_and_all_is_left_afterwards(clock: FakeClock, fails):
    """The observer is outermost; the variant can tell that it is observed; errors leave all."""
    story = []

    @contextmanager
    def around(name: str):
        story.append(f"enter {name}")
        try:
            yield
        finally:
            story.append(f"leave {name}")

    def run() -> toy.Decision:
        story.append("run" if is_observing() else "run alone")
        clock.advance(3)
        if fails:
            raise ValueError("mine")
        return toy.round_robin(PROBLEM)

    family: Family = toy.with_work(toy.TOY, observe=lambda recorder: around("observer"))
    made_up = variant(
        run, installed=lambda: around("installed"), close=lambda: story.append("close")
    )

    def begins(stage: str, recorder: object) -> None:
        story.append(stage)

    with pytest.raises(ValueError, match="mine") if fails else nullcontext():
        assert check(family, made_up, PROBLEM, clock, begins).wall_s == 3
    assert story == [
        "enter observer", "enter installed", CALL, "run",
        *([] if fails else [AFTER_CALL]), "leave installed", "leave observer", "close",
    ]  # fmt: skip
    assert not is_observing()
