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
from planners.reshard.suite import PADDLE

BEFORE, AFTER = RELEASES = "paddle-2.6.2", "paddle-3.3.1"
DRIVER = Path(__file__).parents[2] / "planners" / "reshard" / "upstream" / "driver.py"
MODES = {BEFORE: ["as-shipped", "part1", "part1+2"], AFTER: ["as-shipped", "sync-once"]}
ALL = [(release, mode) for release in RELEASES for mode in MODES[release]]

# What all modes of both releases do for the first of four ranks, by layers.
OF_ALL = {
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

runpy.run_path({driver!r})

from planners.reshard.upstream.running import check_mirror, fingerprint
from planners.reshard.upstream.partitioned import fresh_state, partitioned


def changed(request):
    with fresh_state():
        program = partitioned(2, 2, 2, 0)
    main, startup = program.main, program.startup
    block = main.global_block()
    found = {{"before": fingerprint(main, startup)}}
    check_mirror(main)
    if request["of"] == "attributes":
        block.ops[-1]._set_attr("beta1", 0.5)
        found["after"] = fingerprint(main, startup)
    elif request["of"] == "variables":
        block.desc._rename_var(b"input", b"output")
    elif request["of"] == "ops":
        block.desc._remove_op(3, 4)
    try:
        check_mirror(main)
    except RuntimeError as error:
        found["error"] = str(error)
    return found


HANDLERS = {{"changed": changed}}
"""

pytestmark = pytest.mark.upstreams(*RELEASES)


def reshard(upstream: Upstream, mode: str, **changes: Any) -> dict[str, Any]:
    request = {"layers": 2, "pipeline": 2, "tensor": 2, "rank": 0, "mode": mode}
    return upstream.ask({"kind": "reshard", **request, **changes})


@pytest.mark.parametrize("release", RELEASES)
def test_all_modes_decide_the_same(upstreams: dict[str, Upstream], release: str) -> None:
    answers = [reshard(upstreams[release], mode) for mode in [*MODES[release], "as-shipped"]]
    for answer in answers:
        assert answer["fingerprint"] == answers[0]["fingerprint"]
        assert SIZES[2].items() <= answer.items()
        assert answer["counters"] == {}
        assert answer["cpu_s"] > 0
        assert answer["wall_s"] > 0


@pytest.mark.parametrize("layers", [2, 4])
@pytest.mark.parametrize(("release", "mode"), ALL)
def test_the_counters(upstreams: dict[str, Upstream], release: str, mode: str, layers: int) -> None:
    answer = reshard(upstreams[release], mode, layers=layers, count=True)
    syncs, ops_visited, values_visited = SYNCS[release, mode][layers]
    visits = {"syncs": syncs, "ops_visited": ops_visited, "values_visited": values_visited}
    edits = OF_ALL[layers]["inserts"] + OF_ALL[layers]["removals"]
    assert answer["counters"] == OF_ALL[layers] | visits | {"batches": 5, "edits": edits}
    assert SIZES[layers].items() <= answer.items()


@pytest.mark.parametrize("release", RELEASES)
def test_every_rank_has_a_program_of_its_own(upstreams: dict[str, Upstream], release: str) -> None:
    mode = MODES[release][-1]
    found = [reshard(upstreams[release], mode, rank=rank)["fingerprint"] for rank in range(4)]
    assert len(set(found)) == 4
    assert reshard(upstreams[release], "as-shipped", rank=2)["fingerprint"] == found[2]


@pytest.mark.parametrize("release", RELEASES)
def test_meshes_of_other_sizes(upstreams: dict[str, Upstream], release: str) -> None:
    mode = MODES[release][-1]
    alone = reshard(upstreams[release], mode, pipeline=1, tensor=1, count=True)
    assert alone["counters"]["inserts"] == alone["counters"]["removals"] == 0
    assert alone["ops"] == alone["ops_before"]
    wide = reshard(upstreams[release], mode, pipeline=1, tensor=4, rank=3, count=True)
    assert wide["counters"]["inserts"] > 0
    assert wide["counters"]["removals"] == 0


@pytest.mark.parametrize("release", RELEASES)
def test_another_process_decides_the_same(
    upstreams: dict[str, Upstream], release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = reshard(upstreams[release], "as-shipped", rank=3, count=True)
    monkeypatch.setenv("PYTHONHASHSEED", "1234")  # upstream removes variables in a set's order
    with Upstream(release, DRIVER) as another:
        answer = reshard(another, "as-shipped", rank=3, count=True)
    assert answer["fingerprint"] == expected["fingerprint"]
    assert answer["counters"] == expected["counters"]


@pytest.mark.parametrize(
    ("release", "changes", "said"),
    [
        (BEFORE, {"mode": "sync-once"}, "this release has: as-shipped, part1"),
        (AFTER, {"mode": "part1"}, "this release has: as-shipped, sync-once"),
        (BEFORE, {"rank": 4}, "rank is 4"),
        (BEFORE, {"tensor": 3}, "tensor is 3"),
        (BEFORE, {"pipeline": 3}, "pipeline is 3"),
    ],
)
def test_errors_are_sentences(
    upstreams: dict[str, Upstream], release: str, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ShardbenchError, match=f"{release} failed: ValueError: .*{said}"):
        reshard(upstreams[release], **({"mode": "as-shipped"} | changes))


@pytest.mark.parametrize("release", RELEASES)
def test_the_check_and_the_fingerprint_see_a_change(release: str, tmp_path: Path) -> None:
    driver = tmp_path / "own_driver.py"
    driver.write_text(OWN_DRIVER.format(driver=str(DRIVER)))
    with Upstream(release, driver) as upstream:
        attributes, variables, ops = (
            upstream.ask({"kind": "changed", "of": of}) for of in ("attributes", "variables", "ops")
        )
    assert attributes["before"] == variables["before"] == ops["before"] != attributes["after"]
    assert "error" not in attributes
    assert "the variables of the Python block are not" in variables["error"]
    assert "the ops of the Python block are not" in ops["error"]


@pytest.fixture(scope="module")
def checked():
    problem = FAMILY.work.build(
        WorkloadSpec.parse("paddle[layers=2]"), find_topology("dgx_a100_80gb", 4)
    )
    return {name: check(FAMILY, FAMILY.find(name), problem, SystemClock()) for name in PADDLE}


def test_each_release_makes_the_same_program_in_every_mode(checked):
    prints = [checked[name].fingerprint for name in PADDLE]
    assert len(set(prints[:3])) == len(set(prints[3:])) == 1


def test_the_counters_tell_that_the_switch_is_off(checked):
    syncs = [checked[name].counters["syncs"] for name in PADDLE]
    assert syncs == [299, 28, 5, 29, 5]
    for found in checked.values():
        assert found.counters["batches"] == 5
        assert found.counters["edits"] == 24 + 273
