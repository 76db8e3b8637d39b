from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toy

from harness.contract import Family, Measured, Prepared
from harness.contract.variants import Variant
from harness.measuring.request import Request
from harness.model.errors import ShardbenchError, UsageError
from harness.model.ids import WorkloadSpec
from harness.planning.plan import Planned, plan
from harness.topologies.lookup import find_topology

TOPOLOGY = find_topology("dgx_a100_80gb", 2)


@pytest.fixture
def family() -> Family:
    (found,) = toy.bounded_registry().families
    return found


def make(family: Family, variant: str = "", **options) -> Planned:
    workload = WorkloadSpec("toy", {"size": "5"})
    return plan(Request(family, workload, TOPOLOGY, (variant,) if variant else ()), **options)


def add(family: Family, name: str, prepare) -> None:
    family.variants[name] = Variant(name, prepare, "", "")


def test_the_family_s_own_choice_plans(family: Family):
    made = make(family)
    assert str(made.cell) == "toy/same@toy[size=5]/dgx_a100_80gb:2"
    assert made.document == {"gpu_of_item": (0, 1, 0, 1, 0)}
    assert made.ranks.rows == ((3, 3 / 8), (2, 2 / 8))
    assert made.quality == {"fullest": 3.0, "least": 2.5}
    assert made.first.name == "fullest"
    assert made.bound is not None
    assert made.bound.gap(made.quality) == pytest.approx(0.2)


def test_what_the_variant_installs_is_gone_again(family: Family):
    closed = []

    def prepare(problem: toy.ToyProblem) -> Prepared[toy.Decision]:
        def run() -> Measured[toy.Decision]:
            assert toy.World.changed
            return Measured(toy.round_robin(problem), 1.0, 1.0)

        return Prepared(run, toy.changed_world, lambda: closed.append(True))

    add(family, "installed-elsewhere", prepare)
    assert make(family, "installed-elsewhere").document == {"gpu_of_item": (0, 1, 0, 1, 0)}
    assert not toy.World.changed
    assert closed == [True]


def planning_with(family: Family, **changes: Any) -> Family:
    planning = replace(family.abilities.planning, **changes)
    return replace(family, abilities=replace(family.abilities, planning=planning))


def test_the_search_is_limited_where_it_can_be(family: Family, tmp_path: Path):
    plan(Request(family, WorkloadSpec("toy", {"folder": str(tmp_path)}), TOPOLOGY), seconds=2.5)
    assert (tmp_path / "limit").read_text() == "2.5"
    endless = planning_with(family, limited=None)
    with pytest.raises(UsageError) as refused:
        make(endless, seconds=2.5)
    assert str(refused.value) == "Planning with family 'toy' takes no limit in seconds."


@pytest.mark.parametrize(
    ("variant", "sentence"),
    [
        ("raises", "'raises' found no decision: ValueError: no item likes me"),
        ("missing", f"'missing' is not installed: it needs {toy.NOT_THERE}."),
        ("refuses", "too many items for me"),
        ("infeasible", "(2, 2, 2, 2, 2) does not deal 5 items out."),
    ],
)
def test_why_there_is_no_decision_is_said_in_one_line(family: Family, variant: str, sentence: str):
    with pytest.raises(ShardbenchError) as failed:
        make(family, variant)
    assert str(failed.value) == sentence
