"""AutoParallel's own programmes, solved by its solver and by ours."""

from pathlib import Path

import pytest

import planners.placement

RELEASES = ("autoparallel-a54c252",)
DRIVER = Path(planners.placement.__file__).parent / "upstream" / "driver.py"
MODEL = {"kind": "plan", "blocks": 2, "width": 256}

pytestmark = pytest.mark.upstreams(*RELEASES)


@pytest.mark.parametrize(("mesh", "memory"), [((8,), None), ((2, 4), None), ((2, 4), 0.5)])
def test_the_objective_is_that_of_its_own_solver(upstreams, mesh, memory):
    """Ours solves the programme, and AutoParallel extracts a plan with an equal objective."""
    upstream = upstreams[RELEASES[0]]
    asked = MODEL | {"mesh": mesh, "memory": memory}
    own = upstream.ask(asked | {"accelerated": False})
    ours = upstream.ask(asked | {"accelerated": True})
    assert ours["by_upstream"] == {}
    assert ours["solved"] == 1
    assert ours["objective"] == pytest.approx(own["objective"], rel=1e-6)
    assert ours["ops"] == own["ops"]
