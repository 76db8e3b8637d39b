"""The real Resharder of Paddle, if it is installed, and the variants that call it."""

from pathlib import Path
from typing import Any

import pytest

from harness.execution.upstream import Upstream
from harness.measuring.jobs import check
from harness.measuring.timing.turns import SystemClock
from harness.model.errors import ShardbenchError
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.reshard import FAMILY
from planners.reshard.family import PADDLE

BEFORE, AFTER = RELEASES = "paddle-2.6.2", "paddle-3.3.1"
DRIVER = Path(__file__).parents[2] / "planners" / "reshard" / "upstream" / "driver.py"

# What all modes of both releases do for the first of four ranks, by layers.
EDITS = {
    2: {"inserts": 24, "parses": 21, "removals": 273},
    4: {"inserts": 44, "parses": 37, "removals": 534},
}
SIZES = {
    2: {"ops_before": 209, "ops": 123, "variables_before": 374, "variables": 213},
    4: {"ops_before": 407, "ops": 242, "variables_before": 736, "variables": 422},
}
# By layers, the syncs, and the ops and the variables that they visit.
SYNCS = {
    (BEFORE, "as-shipped"): {2: (299, 43_081, 79_416), 4: (580, 164_977, 301_289)},
    (BEFORE, "part1"): {2: (28, 5_798, 10_160), 4: (48, 19_856, 35_279)},
    (BEFORE, "part1+2"): {2: (5, 739, 1_187), 4: (5, 1_453, 2_336)},
    (AFTER, "as-shipped"): {2: (29, 6_031, 10_566), 4: (49, 20_307, 36_075)},
    (AFTER, "sync-once"): {2: (5, 739, 1_187), 4: (5, 1_453, 2_336)},
}

OWN_DRIVER = """
import runpy

driver = runpy.run_path({driver!r})


def changed(request):
    with driver["fresh_state"]():
        main, startup, *_ = driver["partitioned"](2, 2, 2, 0)
    block = main.global_block()
    driver["check_mirror"](main)
    before = driver["fingerprint"](main, startup)
    if request["of"] == "attributes":
        block.ops[-1]._set_attr("beta1", 0.5)
    elif request["of"] == "variables":
        block.desc._rename_var(b"input", b"output")
    elif request["of"] == "ops":
        block.desc._remove_op(3, 4)
    try:
        driver["check_mirror"](main)
    except RuntimeError as error:
        return {{"error": str(error)}}
    return {{"is_seen": driver["fingerprint"](main, startup) != before}}


HANDLERS = {{"changed": changed}}
"""

pytestmark = pytest.mark.upstreams(*RELEASES)


def reshard(upstream: Upstream, mode: str, **changes: Any) -> dict[str, Any]:
    """Return a release's answer for a small program, with changes to the request."""
    request = {"layers": 2, "pipeline": 2, "tensor": 2, "rank": 0, "mode": mode, "count": False}
    return upstream.ask({"kind": "reshard", **request, **changes})


@pytest.mark.parametrize("layers", [2, 4])
@pytest.mark.parametrize(("release", "mode"), SYNCS)
def test_counters_and_sizes(
    upstreams: dict[str, Upstream], release: str, mode: str, layers: int
) -> None:
    """Each mode of each release has exact counts; without counts the program is the same."""
    answer = reshard(upstreams[release], mode, layers=layers, count=True)
    names = ("syncs", "ops_visited", "values_visited")
    visits = dict(zip(names, SYNCS[release, mode][layers], strict=True))
    edits = EDITS[layers]["inserts"] + EDITS[layers]["removals"]
    assert answer["counters"] == EDITS[layers] | visits | {"batches": 5, "edits": edits}
    timed = reshard(upstreams[release], mode, layers=layers)
    assert timed["counters"] == {}
    assert min(timed["cpu_s"], timed["wall_s"]) > 0
    assert timed["fingerprint"] == answer["fingerprint"]
    assert SIZES[layers].items() <= timed.items()


@pytest.mark.parametrize("release", RELEASES)
def test_ranks_and_meshes(upstreams: dict[str, Upstream], release: str) -> None:
    """Ranks have programs of their own; one stage removes nothing, and one rank inserts nothing."""
    upstream = upstreams[release]
    prints = {reshard(upstream, "as-shipped", rank=rank)["fingerprint"] for rank in range(4)}
    assert len(prints) == 4
    alone = reshard(upstream, "as-shipped", pipeline=1, tensor=1, count=True)
    assert alone["counters"]["edits"] == 0
    assert alone["ops"] == alone["ops_before"]
    wide = reshard(upstream, "as-shipped", pipeline=1, tensor=4, rank=3, count=True)
    assert wide["counters"]["inserts"] == wide["counters"]["edits"] > 0


@pytest.mark.parametrize("release", RELEASES)
def test_another_process_decides_the_same(
    upstreams: dict[str, Upstream], release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of sets, in which Paddle removes variables, does not change the program."""
    expected = reshard(upstreams[release], "as-shipped", rank=3, count=True)
    monkeypatch.setenv("PYTHONHASHSEED", "1234")
    with Upstream(release, DRIVER) as another:
        answer = reshard(another, "as-shipped", rank=3, count=True)
    assert answer["fingerprint"] == expected["fingerprint"]
    assert answer["counters"] == expected["counters"]


def test_a_mesh_that_does_not_divide_the_heads_is_one_sentence(
    upstreams: dict[str, Upstream],
) -> None:
    """An error in the child process names the release and the fault."""
    with pytest.raises(ShardbenchError, match=f"{BEFORE} failed: ValueError: tensor is 3"):
        reshard(upstreams[BEFORE], "as-shipped", tensor=3)


@pytest.mark.parametrize("release", RELEASES)
def test_the_check_and_the_fingerprint_see_a_change(release: str, tmp_path: Path) -> None:
    """An attribute changes the fingerprint; ops and variables are compared with the C++ block."""
    driver = tmp_path / "own_driver.py"
    driver.write_text(OWN_DRIVER.format(driver=str(DRIVER)))
    with Upstream(release, driver) as upstream:
        attributes, variables, ops = (
            upstream.ask({"kind": "changed", "of": of}) for of in ("attributes", "variables", "ops")
        )
    assert attributes == {"is_seen": True}
    assert "the variables of the Python block are not" in variables["error"]
    assert "the ops of the Python block are not" in ops["error"]


def test_variants_of_a_release_differ_in_syncs_alone() -> None:
    """The variants of a release make the same program; the counter shows that a switch is off."""
    machine = find_topology("dgx_a100_80gb", 4)
    problem = FAMILY.work.build(WorkloadSpec.parse("paddle[layers=2]"), machine)
    cells = [check(FAMILY, FAMILY.find(name), problem, SystemClock()) for name in PADDLE]
    prints = [cell.fingerprint for cell in cells]
    assert len(set(prints[:3])) == len(set(prints[3:])) == 1
    assert [cell.counters["syncs"] for cell in cells] == [299, 28, 5, 29, 5]
