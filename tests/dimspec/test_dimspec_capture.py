"""Conversions in a real ColossalAI are captured, and give the same answers when replayed."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.contract import ShardbenchError, UsageError
from harness.execution.upstream import Upstream
from harness.measuring.jobs import check
from harness.measuring.timing.turns import SystemClock
from harness.model.ids import WorkloadSpec
from harness.planning.capture import capture
from harness.topologies.lookup import find_topology
from planners.dimspec import FAMILY
from planners.dimspec.capture import record

RELEASE = "colossalai-0.4.1"

OWN_DRIVER = Path(__file__).with_name("accelerated_driver.py")

installed = pytest.mark.upstreams(RELEASE)


@pytest.fixture(scope="module")
def own() -> Iterator[Upstream]:
    with Upstream(RELEASE, OWN_DRIVER) as upstream:
        yield upstream


def unlike_recorded(path: Path, variant: str = "interned") -> float:
    workload = WorkloadSpec(str(path))
    topology = FAMILY.brings(workload)
    assert topology is not None
    problem = FAMILY.work.build(workload, topology)
    return check(FAMILY, FAMILY.find(variant), problem, SystemClock()).quality["unlike_recorded"]


@installed
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_live_planner_is_captured_and_answered_alike(suffix, own, tmp_path):
    path = tmp_path / f"queries{suffix}"
    own.ask({"kind": "is_captured", "path": str(path)})
    text = path.read_bytes() if suffix == ".json" else gzip.decompress(path.read_bytes())
    held = json.loads(text)
    assert held["shardbench"]["family"] == "dimspec"
    assert held["mesh_shape"] == [2, 4]
    assert held["mesh_alpha"] == [0.5, 2.0]
    assert held["mesh_beta"] == [0.25, 1.5]
    assert held["sequence"] == [0, 1, 0, 2]
    assert held["queries"][1]["src"] == [[1, [1]], [0, [0]]]
    assert held["left_out"] == 1
    for variant in ("interned", RELEASE):
        assert unlike_recorded(path, variant) == 0


@installed
def test_an_accelerated_planner_is_captured_alike(own, tmp_path):
    paths = [tmp_path / name for name in ("own.json", "accelerated.json")]
    for path, accelerated in zip(paths, (False, True), strict=True):
        own.ask({"kind": "is_captured", "path": str(path), "accelerated": accelerated})
    assert paths[0].read_text() == paths[1].read_text()


@installed
def test_colossalai_is_as_before_after_an_error_and_what_was_asked_is_kept(own, tmp_path):
    path = tmp_path / "queries.json"
    own.ask({"kind": "is_captured_until_an_error", "path": str(path)})
    assert json.loads(path.read_text())["sequence"] == [0, 1, 0, 2]


@installed
def test_the_stream_of_a_model_can_be_written_without_a_script(tmp_path):
    path = tmp_path / "mlp2.json.gz"
    with capture("dimspec", path):
        record("mlp2", (2, 2))
    held = json.loads(gzip.decompress(path.read_bytes()))
    assert held["model"] == "mlp2"
    assert len(held["sequence"]) == 4_571
    assert unlike_recorded(path) == 0


@installed
def test_a_models_name_is_hashed(tmp_path):
    path = tmp_path / "hashed.json"
    with capture("dimspec", path, hash_names=True):
        record("mlp2", (2, 2))
    assert "mlp2" not in path.read_text()
    assert json.loads(path.read_text())["model"].startswith("0_")


@installed
def test_a_model_that_is_unknown_is_said(tmp_path):
    with (
        pytest.warns(UserWarning, match="was not written"),
        pytest.raises(ShardbenchError, match="model is 'mine'; known are: "),
        capture("dimspec", tmp_path / "mine.json"),
    ):
        record("mine", (2, 2))


def test_recording_outside_of_a_capture_is_refused():
    with pytest.raises(UsageError, match=r"Record inside `with capture"):
        record("mlp2", (2, 2))


def test_a_process_that_asks_nothing_is_warned(tmp_path):
    path = tmp_path / "queries.json"
    with (
        pytest.warns(UserWarning, match="ColossalAI was asked for no conversion inside"),
        capture("dimspec", path),
    ):
        pass
    assert not path.exists()


def test_a_second_capture_is_refused(tmp_path):
    with (
        pytest.warns(UserWarning, match="ColossalAI was asked for no conversion"),
        capture("dimspec", tmp_path / "first.json"),
        pytest.raises(UsageError, match="A stream is captured already; leave that one first"),
        capture("dimspec", tmp_path / "second.json"),
    ):
        pass


def test_a_file_brings_its_mesh_and_a_mesh_that_is_asked_for_goes_first(tmp_path):
    path = tmp_path / "stream.json"
    path.write_text(json.dumps({"mesh_shape": [2, 4], "queries": [], "sequence": []}))
    brought = FAMILY.brings(WorkloadSpec(str(path)))
    assert (brought.gpus, brought.mesh_shape(2)) == (8, (2, 4))
    asked = FAMILY.brings(WorkloadSpec(str(path), {"mesh": "4x8"}))
    assert (asked.gpus, asked.mesh_shape(2)) == (32, (4, 8))
    path.write_text(json.dumps({"mesh_shape": [2**31, 2**31]}))
    assert FAMILY.brings(WorkloadSpec(str(path))) is None
    assert FAMILY.brings(WorkloadSpec("resnet50")) is None
    assert find_topology("dgx_h100", 8).mesh_shape(1) == (8,)
