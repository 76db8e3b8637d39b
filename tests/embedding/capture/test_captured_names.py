"""Captured files contain no weights, and with hashed names neither names nor error messages."""

import gzip

import pytest
import torch
from captured_models import bags, built, captured, live_decision, script
from random_models import collection
from torch import nn
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import GreedyProposer
from torchrec.distributed.planner.types import ParameterConstraints

from harness.planning.capture import capture
from planners.embedding import FAMILY

pytestmark = pytest.mark.filterwarnings("ignore:HeuristicalStorageReservation is known")


@pytest.mark.parametrize("name", ["problem.json", "problem.json.gz"])
def test_hashed_names_are_nowhere_in_the_file(tmp_path, name):
    model = nn.Module()
    model.marker_outer = nn.ModuleDict({"marker_inner": bags("marker_table")})
    live = script(model)
    live.constraints = {
        "marker_table_1": ParameterConstraints(
            feature_names=["marker_feature"], device_group="marker_group"
        ),
        "marker_table_2": ParameterConstraints(["marker_type", "table_wise"]),
        "marker_unknown": ParameterConstraints(),
    }

    class MarkerProposer(GreedyProposer):
        pass

    class MarkerPlanner(EmbeddingShardingPlanner):
        def plan(self, *args, **kwargs):
            return super().plan(*args, **kwargs)

    live.arguments["proposer"] = lambda: [MarkerProposer(), GreedyProposer()]
    captured(live, tmp_path / name, hash_names=True, planner=live.planner(MarkerPlanner))
    written = (tmp_path / name).read_bytes()
    text = gzip.decompress(written) if name.endswith(".gz") else written
    assert b"marker" not in (written + text).lower()
    captured(live, tmp_path / "open.json")
    assert b"marker_table_1" in (tmp_path / "open.json").read_bytes()


def test_an_errors_text_is_not_in_a_file_with_hashed_names(path):
    live = script(bags("marker"))
    live.constraints = {"marker_1": ParameterConstraints(["grid_shard"], ["dense"])}
    with (
        pytest.raises(RuntimeError, match="marker_1"),
        capture("embedding", path, hash_names=True),
    ):
        live.planner().plan(live.module, live.sharders())
    assert b"marker" not in path.read_bytes()
    prepared = FAMILY.find("as-captured").prepared(built(path))
    with pytest.raises(RuntimeError, match="No available sharding type"):
        prepared.run()
    assert live_decision(path) == "none, RuntimeError"


def test_no_weights_are_in_a_file(path):
    model = collection({"t": (20, 4)}, device=torch.device("cpu"))
    with torch.no_grad():
        model.embedding_bags["t"].weight.fill_(0.123456)
    captured(script(model), path)
    text = (path).read_text()
    assert "0.1234" not in text
    assert len(text) < 100_000
