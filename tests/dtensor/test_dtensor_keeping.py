"""Objects that outlive a step: torch's own optimizers leave none, and leaks are detected."""

from collections import deque

import pytest
from small_world import checked, problem_of

from planners.dtensor.counting.keeping import kept_per_step
from planners.dtensor.dispatch.specs import SpecTable
from planners.dtensor.workloads import OPTIMIZERS

HOST = "dgx_a100_80gb:8"


@pytest.mark.parametrize("lr", ["constant", "changing"])
@pytest.mark.parametrize("implementation", OPTIMIZERS)
@pytest.mark.parametrize("variant", ["upstream", "interned", "shape-class", "local-step"])
def test_an_optimizer_step_keeps_nothing(variant, implementation, lr):
    problem = problem_of(f"optimizer[impl={implementation},params=4,lr={lr}]/{HOST}")
    counters = checked(variant, problem).counters
    assert (counters["objects_kept"], counters["bytes_kept"]) == (0, 0)


def test_the_oldest_way_keeps_a_decision_for_every_step():
    problem = problem_of(f"optimizer[impl=fused,params=4,lr=changing]/{HOST}")
    assert checked("before", problem).counters["objects_kept"] > 0


def test_a_size_that_is_new_is_kept_by_upstream_and_hardly_by_its_class():
    problem = problem_of(f"dynamic/{HOST}")
    upstream, ours = (checked(variant, problem).counters for variant in ("upstream", "shape-class"))
    assert upstream["objects_kept"] > 10 * ours["objects_kept"]


def test_a_full_table_keeps_no_further_size(monkeypatch):
    monkeypatch.setattr(SpecTable.__init__, "__defaults__", (2,))
    counters = checked("shape-class", problem_of(f"dynamic/{HOST}")).counters
    assert counters["objects_kept"] == 0


def test_counting_kept_objects_leaves_the_other_counters_alone():
    program = problem_of(f"optimizer[params=4]/{HOST}")
    counters = checked("upstream", program).counters
    assert counters["lookups"] == counters["hits"] < 400


def test_a_leak_is_counted_by_the_step():
    held: list[object] = []
    kept = kept_per_step(lambda: held.append([[]]))
    assert kept.objects == 2
    assert kept.bytes >= 2 * 56


def test_an_object_that_is_made_once_does_not_count():
    held: dict[str, list[list[int]]] = {}
    assert kept_per_step(lambda: held.setdefault("made", [[], []])) == (0, 0)


def test_an_object_in_place_of_an_older_one_does_not_count():
    last = deque(([number] for number in range(1000)), maxlen=1000)
    assert kept_per_step(lambda: last.append([0])) == (0, 0)
