import json
import math
import weakref
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import toy
from fake_clock import FakeClock
from msgspec import to_builtins

from harness.contract import Abilities, Family, Planning, Prepared, RankTable, is_observing
from harness.contract.variants import Variant
from harness.measuring.check import check
from harness.model.errors import RegistryError
from harness.model.files import to_json
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import find_topology

PROBLEM = toy.build(WorkloadSpec("toy"), find_topology("dgx_a100_80gb", 2))


def checked(name: str, clock: FakeClock, **options):
    return check(toy.TOY, toy.TOY.variants[name], PROBLEM, clock, **options)


def variant(run, **options) -> Variant:
    def prepare(problem: toy.ToyProblem) -> Prepared[toy.Decision]:
        return Prepared(run, **options)

    return Variant("made-up", prepare, "", "")


def test_a_decision_is_fingerprinted_rated_and_counted(clock: FakeClock):
    found = checked("reference", clock)
    assert found.fingerprint == "0-1-0-1-0-1"
    assert found.quality == {"fullest": 3.0}
    assert found.counters == {"dealt": 6, "returned": 0}
    assert found.phases.keys() == {"other"}


def test_a_variant_can_tell_that_it_is_observed(clock: FakeClock):
    told = []

    def run() -> toy.Decision:
        told.append(is_observing())
        return toy.round_robin(PROBLEM)

    check(toy.TOY, variant(run), PROBLEM, clock)
    run()
    assert told == [True, False]

    def fail() -> toy.Decision:
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        check(toy.TOY, variant(fail), PROBLEM, clock)
    assert not is_observing()


def test_garbage_of_setting_up_is_collected_before_a_timed_call(clock: FakeClock):
    class InACycle:
        def __init__(self) -> None:
            self.cycle = self

    left = weakref.WeakSet()

    def begin() -> None:
        left.add(InACycle())

    def run() -> toy.Decision:
        assert not left
        return toy.round_robin(PROBLEM)

    check(toy.TOY, variant(run, renew=begin), PROBLEM, clock, observed=False)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "7", 1j, 10**400])
def test_a_quality_that_is_no_number_is_refused(clock: FakeClock, value: Any):
    family = toy.with_work(toy.TOY, quality=lambda problem, decision: {"fullest": value})
    with pytest.raises(RegistryError) as refused:
        check(family, toy.TOY.variants["same"], PROBLEM, clock)
    refusal = str(refused.value)
    assert refusal.startswith("Quality 'fullest' of 'toy/same' is ")
    assert refusal.endswith(", not a number.")
    assert len(refusal) < 100


def test_the_problem_is_called_once_inside_observer_and_installation(clock: FakeClock):
    story = []

    @contextmanager
    def around(name: str):
        story.append(f"enter {name}")
        try:
            yield
        finally:
            story.append(f"leave {name}")

    def run() -> toy.Decision:
        story.append("run")
        clock.advance(3)
        return toy.round_robin(PROBLEM)

    family: Family = toy.with_work(toy.TOY, observe=lambda recorder: around("observer"))
    made_up = variant(
        run, installed=lambda: around("installed"), close=lambda: story.append("close")
    )
    found = check(family, made_up, PROBLEM, clock, lambda recorder: story.append("call begins"))
    assert found.wall_s == 3
    assert story == [
        "enter observer",
        "enter installed",
        "call begins",
        "run",
        "leave installed",
        "leave observer",
        "close",
    ]


def test_after_an_error_all_is_left_and_closed(clock: FakeClock):
    closed = []

    def run() -> toy.Decision:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        check(
            toy.TOY,
            variant(run, installed=toy.changed_world, close=lambda: closed.append(True)),
            PROBLEM,
            clock,
        )
    assert closed == [True]
    assert toy.Observed.recorder is None
    assert not toy.World.changed


def test_what_each_rank_gets_is_kept_where_the_family_plans(clock: FakeClock):
    assert checked("reference", clock).ranks is None
    table = RankTable(("dealt",), ((3.0,), (3.0,)), (None,), "dealt")
    planning = Planning("reference", lambda *_: {}, lambda *_: table)
    family = replace(toy.TOY, abilities=Abilities(planning=planning))
    found = check(family, toy.TOY.variants["reference"], PROBLEM, clock)
    assert found.ranks == table
    record = json.loads(to_json(to_builtins(found.ranks)))
    assert record == {"columns": ["dealt"], "rows": [[3.0], [3.0]], "capacities": [None],
                      "bar": "dealt"}  # fmt: skip


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_rank_without_a_number_is_refused(value: float):
    with pytest.raises(ValueError, match="must hold numbers"):
        RankTable(("ms",), ((value,),), (None,), "ms")
