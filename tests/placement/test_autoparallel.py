"""AutoParallel's own programmes, solved by its solver and by ours."""

import json
from pathlib import Path

import pytest

import planners.placement
from planners.placement.files import read_problem
from planners.placement.problem import cost_of
from planners.placement.search.certified import certified

RELEASES = ("autoparallel-a54c252",)
DRIVER = Path(planners.placement.__file__).parent / "upstream" / "driver.py"
MODEL = {"kind": "plan", "blocks": 2, "width": 256, "memory": None, "later": False}

pytestmark = pytest.mark.upstreams(*RELEASES)


@pytest.mark.parametrize(
    "problem",
    [
        {"mesh": (8,)},
        {"mesh": (2, 4)},
        {"mesh": (2, 4), "memory": 0.5},
        pytest.param({"mesh": (8,), "later": True}, id="an AutoParallel with other costs"),
    ],
)
def test_the_objective_is_that_of_its_own_solver(upstreams, problem):
    """Ours solves the programme, and AutoParallel extracts a plan with an equal objective."""
    upstream = upstreams[RELEASES[0]]
    asked = MODEL | problem
    own = upstream.ask(asked | {"accelerated": False})
    ours = upstream.ask(asked | {"accelerated": True})
    assert ours["by_upstream"] == {}
    assert ours["solved"] == 1
    assert ours["objective"] == pytest.approx(own["objective"], rel=1e-6)
    assert ours["ops"] == own["ops"]


def test_a_captured_programme_is_a_workload(upstreams, tmp_path):
    """The best plan of the file costs AutoParallel's objective, in millionths."""
    asked = MODEL | {"mesh": (8,), "accelerated": False}
    answer = upstreams[RELEASES[0]].ask(asked)
    path = tmp_path / "captured.json"
    path.write_text(json.dumps(answer["captured"]))
    problem = read_problem(str(path))
    plan = certified(problem)
    assert cost_of(problem, plan.choice) == pytest.approx(answer["objective"] * 1e6, rel=1e-6)
