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
    """No object outlives a step, and counting them changes no other counter."""
    problem = problem_of(f"optimizer[impl={implementation},params=4,lr={lr}]/{HOST}")
    counters = checked(variant, problem).counters
    assert (counters["objects_kept"], counters["bytes_kept"]) == (0, 0)
    assert counters["lookups"] == counters["hits"] < 400


def test_the_oldest_way_keeps_a_decision_for_every_step():
    """Before #107305, a changing learning rate is a new key in each step."""
    problem = problem_of(f"optimizer[impl=fused,params=4,lr=changing]/{HOST}")
    assert checked("before", problem).counters["objects_kept"] > 0


def test_a_size_that_is_new_is_kept_by_upstream_and_hardly_by_its_class(monkeypatch):
    """Upstream keeps ten times as many objects for a new size, and a full table keeps none."""
    problem = problem_of(f"dynamic/{HOST}")
    upstream, ours = (checked(variant, problem).counters for variant in ("upstream", "shape-class"))
    assert upstream["objects_kept"] > 10 * ours["objects_kept"]
    monkeypatch.setattr(SpecTable.__init__, "__defaults__", (2,))
    assert checked("shape-class", problem_of(f"dynamic/{HOST}")).counters["objects_kept"] == 0


def test_only_objects_that_add_up_from_step_to_step_are_counted():
    """A leak is counted; an object that is made once, or replaces an older one, is none."""
    leaked: list[object] = []
    leak = kept_per_step(lambda: leaked.append([[]]))
    assert leak.objects == 2
    assert leak.bytes >= 2 * 56
    known: dict[str, list[list[int]]] = {}
    assert kept_per_step(lambda: known.setdefault("made", [[], []])) == (0, 0)
    last = deque(([number] for number in range(1000)), maxlen=1000)
    assert kept_per_step(lambda: last.append([0])) == (0, 0)
