"""The real ColossalAI, where it is installed."""

import gzip
import json
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import planners.dimspec
from harness.execution.upstream import Upstream
from harness.model.errors import ShardbenchError
from planners.dimspec.conversion.partition import Mesh, all_partitions

BEFORE, AFTER = RELEASES = "colossalai-0.4.0", "colossalai-0.4.1"
DRIVER = "planners.dimspec.upstream.driver"
DATA = Path(planners.dimspec.__path__[0]) / "data"

# (release, what answers)
ALL = [(BEFORE, "colossalai"), (AFTER, "colossalai"), (AFTER, "interned")]

# What mlp2 takes on 2x2 devices: reproducible to the last call.
OF_MLP2 = {
    "conversions": 4_571,
    "searches": 4_571,
    "distinct_searches": 706,
    "expansions": 7_748,
    "dictionaries_built": 79_992,
    "dim_specs_built": 79_992,
    "sharding_specs_built": 36_956,
    "difference_calls": 95_055,
}

OWN_DRIVER = Path(__file__).parent / "accelerated_driver.py"

pytestmark = pytest.mark.upstreams(*RELEASES)


MESHES = (Mesh.of(4, 4), Mesh((2, 4), (0.1, 3.5), (0.7, 0.2)))


def query(
    shape: tuple[int, ...],
    source: dict[int, list[int]],
    target: dict[int, list[int]],
    mesh: int = 0,
) -> list[Any]:
    return [asdict(MESHES[mesh]), shape, list(source.items()), list(target.items())]


def stream(*queries: list[Any], sequence: list[int] | None = None) -> dict[str, Any]:
    order = list(range(len(queries))) if sequence is None else sequence
    return {"kind": "stream", "queries": queries, "sequence": order}


def test_all_answer_the_same(upstreams: dict[str, Upstream]) -> None:
    queries = [
        query(shape, dict(source), dict(target), mesh)
        for mesh, axes in enumerate([(4, 4), (2, 4)])
        for shape in [(16, 8), (6, 4, 32)]
        for source, target in product(all_partitions(Mesh.of(*axes), shape), repeat=2)
    ]
    # of two partitions that differ in their order only, steps may begin at different dimensions
    queries += [
        query((16, 8), {1: [1], 0: [0]}, {}, 1),
        query((16, 8), {0: [0], 1: [1]}, {}, 1),
    ]
    request = stream(*queries, sequence=[*range(len(queries)), *range(0, len(queries), 7)])
    first, *others = [upstreams[release].ask({**request, "answered_by": by}) for release, by in ALL]
    assert len(first["costs"]) == len(request["sequence"])
    assert first["counters"] == {}
    assert first["cpu_s"] > 0
    assert first["wall_s"] > 0
    for other in others:
        assert other["answers"] == first["answers"]
        assert other["costs"] == first["costs"]


@pytest.mark.parametrize(("release", "by"), ALL)
def test_an_answer_has_path_steps_and_upstreams_cost(
    upstreams: dict[str, Upstream], release: str, by: str
) -> None:
    asked = query((64, 32, 16), {1: [0, 1]}, {0: [0, 1]})
    request = stream(asked, query((64, 32, 16), {}, {}), asked, sequence=[0, 1, 1])
    answer = upstreams[release].ask({**request, "answered_by": by})
    moved, nothing, never_asked = answer["answers"]
    assert moved["path"] == [[[1, [0, 1]]], [[1, [0]]], [[0, [0]]], [[0, [0, 1]]]]
    assert moved["comms"] == [
        ["GATHER_FWD_SPLIT_BWD", 1, 1, 1],
        ["ALL2ALL_FWD_ALL2ALL_BWD", 1, 0, 0],
        ["SPLIT_FWD_GATHER_BWD", 0, 0, 1],
    ]
    assert moved["cost"][2] == pytest.approx(25_085.5, abs=0.1)
    assert nothing == {"path": [], "comms": [], "cost": [0.0, 0.0, 0.0]}
    assert never_asked is None
    assert answer["costs"] == [moved["cost"][2], 0.0, 0.0]


def test_the_counters_of_a_stream(upstreams: dict[str, Upstream]) -> None:
    # one query with its target's dimensions in two orders, one that needs nothing
    request = stream(
        query((16, 8), {}, {0: [0], 1: [1]}),
        query((16, 8), {}, {1: [1], 0: [0]}),
        query((16, 8), {}, {}),
        sequence=[0, 1, 0, 2],
    )
    before, after, interned = (
        upstreams[release].ask({**request, "answered_by": by, "count": True})["counters"]
        for release, by in ALL
    )
    assert before["conversions"] == before["searches"] == 4
    assert before["distinct_searches"] == 3
    assert before["expansions"] == 2 * 3
    assert before["dictionaries_built"] == before["dim_specs_built"]
    assert 0 < after["dictionaries_built"] < after["dim_specs_built"]
    assert {**after, "dictionaries_built": before["dictionaries_built"]} == before
    assert interned["conversions"] == 4
    assert interned["searches"] == 3
    assert interned["expansions"] == interned["difference_calls"] == 0
    assert interned["sharding_specs_built"] < after["sharding_specs_built"]


def test_all_build_the_same_plan_space(upstreams: dict[str, Upstream]) -> None:
    request = {"kind": "constructor", "model": "mlp2", "mesh_shape": [2, 2], "count": True}
    before, after, interned = (
        upstreams[release].ask({**request, "answered_by": by}) for release, by in ALL
    )
    assert before["fingerprint"] == after["fingerprint"] == interned["fingerprint"]
    assert before["quality"] == interned["quality"]
    figures = {"nodes": 24, "strategies": 276, "resharding_costs": 4_571}
    for answer in (before, after, interned):
        assert figures.items() <= answer.items()
    assert before["counters"] == OF_MLP2
    assert after["counters"] == {**OF_MLP2, "dictionaries_built": 59_961}
    assert interned["counters"]["conversions"] == 4_571
    assert interned["counters"]["searches"] == 706
    assert interned["counters"]["expansions"] == 0


def test_convolutions_build_the_same_plan_space(upstreams: dict[str, Upstream]) -> None:
    request = {"kind": "constructor", "model": "resnet-tiny", "mesh_shape": [2, 2]}
    real, interned = (
        upstreams[AFTER].ask({**request, "answered_by": by}) for by in ("colossalai", "interned")
    )
    assert real["counters"] == {}
    assert real["fingerprint"] == interned["fingerprint"]
    assert (real["nodes"], real["strategies"], real["resharding_costs"]) == (60, 724, 10_835)


def test_a_recording_is_well_formed(upstreams: dict[str, Upstream]) -> None:
    recorded = upstreams[AFTER].ask({"kind": "record", "model": "mlp2", "mesh_shape": [2, 2]})
    assert recorded["model"] == "mlp2"
    assert recorded["mesh_shape"] == [2, 2]
    assert recorded["mesh_alpha"] == recorded["mesh_beta"] == [1.0, 1.0]
    assert len(recorded["sequence"]) == OF_MLP2["conversions"]
    assert sorted(set(recorded["sequence"])) == list(range(len(recorded["queries"])))
    assert len(recorded["queries"]) >= OF_MLP2["distinct_searches"]
    for query in recorded["queries"]:
        assert list(query) == ["shape", "src", "dst", "path", "comms", "cost"]
        assert len(query["path"]) == (len(query["comms"]) + 1 if query["comms"] else 0)
        assert query["cost"]["total"] == pytest.approx(query["cost"]["fwd"] + query["cost"]["bwd"])


@pytest.mark.slow
@pytest.mark.parametrize("model", ["resnet50", "gpt12"])
def test_a_recording_is_the_stored_stream(upstreams: dict[str, Upstream], model: str) -> None:
    stored = json.loads(gzip.decompress((DATA / f"{model}_2x2.json.gz").read_bytes()))
    recorded = upstreams[AFTER].ask({"kind": "record", "model": model, "mesh_shape": [2, 2]})
    for name in ("mesh_shape", "mesh_alpha", "mesh_beta", "nodes", "strategies", "sequence"):
        assert recorded[name] == stored[name], name
    assert recorded["queries"] == stored["queries"]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (
            {"kind": "constructor", "model": "gpt", "mesh_shape": [2, 2]},
            "ValueError: model is 'gpt'",
        ),
        ({**stream(), "answered_by": "alpa"}, "ValueError: answered_by is 'alpa'"),
        (stream(query((16, 8), {0: [0], 1: [0]}, {})), "DuplicatedShardingDimensionError: "),
    ],
)
def test_errors_are_sentences(
    upstreams: dict[str, Upstream], request_: dict[str, Any], said: str
) -> None:
    with pytest.raises(ShardbenchError, match=f"^{AFTER} failed: {said}"):
        upstreams[AFTER].ask(request_)


@pytest.mark.parametrize(
    "check",
    [
        "gives_the_method_back",
        "answers_with_fresh_lists_of_real_objects",
        "leaves_to_upstream_what_it_does_not_answer",
        "leaves_upstreams_cache_as_upstream_would",
        "leaves_classes_of_the_users_own_to_upstream",
        "may_end_before_what_began_after_it",
        "gives_threads_the_answers_of_one",
        "warns_once_on_other_releases_and_leaves_them_to_upstream",
    ],
)
@pytest.mark.parametrize("release", RELEASES)
def test_accelerate(release: str, check: str) -> None:
    with Upstream(release, OWN_DRIVER) as upstream:
        upstream.ask({"kind": check})
