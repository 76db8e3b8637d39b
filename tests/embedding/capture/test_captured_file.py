"""Captured files are read, or refused in one sentence; they contain no weights and no secrets."""

import copy
import json
import tempfile
from pathlib import Path
from random import Random

import pytest
import torch
from captured_models import bags, built, captured, random_script, script
from hostile import change, changes, read_or_refused, refusal
from hypothesis import HealthCheck, given, settings
from random_models import collection
from torch import nn
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import GreedyProposer
from torchrec.distributed.planner.types import ParameterConstraints

from harness.model.ids import WorkloadSpec
from planners.embedding import FAMILY


def document() -> dict:
    """Return the captured document of a random script with a few tables."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "problem.json")
        live = random_script(Random(9), most_tables=3)
        live.arguments = {}
        captured(live, path)
        return json.loads(path.read_text())


DOCUMENT = document()
CPU = torch.device("cpu")


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(wanted=changes({key: value for key, value in DOCUMENT.items() if key != "shardbench"}))
def test_a_changed_file_is_read_or_refused(path, wanted):
    """Whatever is changed, a refusal is one sentence that names the file."""
    changed = copy.deepcopy(DOCUMENT)
    change(changed, wanted)
    path.write_text(json.dumps(changed))
    workload = WorkloadSpec(str(path))
    for ask in (FAMILY.label, FAMILY.brings, lambda _: built(path)):
        read_or_refused(lambda ask=ask: ask(workload), path.name)


@pytest.mark.parametrize(
    ("way", "value", "said"),
    [
        (("topology", "world_size"), 2**40, "`int` <= 131072 - at `$.topology.world_size`"),
        (("topology", "local_world_size"), 2**17, "local_world_size and pod_size must be at most"),
        (("topology", "custom"), {"a": []}, "torchrec refuses it: AssertionError"),
        (("modules", 0, "path"), "a..b", "torchrec refuses it: KeyError"),
        (("modules", 0, "tables", 0, "pooling"), "LAST", "at `$.modules[0].tables[0].pooling`"),
        (("sharders",), [], "which the installed torchrec does not enumerate"),
        (("planner", "proposers", 0, "kind"), "os.system", "must be one of GreedyProposer"),
        (("planner", "kind"), "Planner", "a Planner must have mode"),
        (("options", 0, "table"), 99, "tables that are there"),
        (("options", 0, "shards"), [[1, 1, 1, 10**9]], "estimates that are there"),
        (("options", 0, "shards"), [[2**17, 1, 1, 0]] * 2, "at most 131072 shards"),
        (("options", 0, "shards"), [[2, 9, 4, 0]], "in 2 shards, the first with 9 rows and 4 col"),
        (("options", 0, "compute_kernel"), "fused_of_tomorrow", "option 'fused_of_tomorrow'"),
        (("found",), {}, "must have a fingerprint or an error"),
    ],
)
def test_what_cannot_be_so_is_named(path, way, value, said):
    """A refusal names the field, or what torchrec does not have."""
    changed = copy.deepcopy(DOCUMENT)
    change(changed, [(way, "put", value)])
    path.write_text(json.dumps(changed))
    assert said in refusal(lambda: built(path))


def test_a_captured_workload_takes_no_parameters(path):
    """The size and the tables of a captured problem are those of the file."""
    path.write_text(json.dumps(DOCUMENT))
    said = refusal(lambda: FAMILY.label(WorkloadSpec(str(path), {"tables": "3"})))
    assert "takes no parameters" in said


class MarkerProposer(GreedyProposer):
    """A user's own proposer, with a name to look for."""


class MarkerPlanner(EmbeddingShardingPlanner):
    """A user's own planner, with a name to look for."""

    def plan(self, *args, **kwargs):
        return super().plan(*args, **kwargs)


def test_hashed_names_and_weights_are_nowhere_in_the_file(path):
    """Names of modules, tables, features, classes and constraints are hashed if so wished."""
    tables = collection({f"marker_table_{n}": (20, 4) for n in range(4)}, device=CPU)
    with torch.no_grad():
        for weight in tables.parameters():
            weight.fill_(0.123456)
    model = nn.Module()
    model.marker_outer = nn.ModuleDict({"marker_inner": tables})
    live = script(model, proposer=lambda: [MarkerProposer(), GreedyProposer()])
    live.constraints = {
        "marker_table_1": ParameterConstraints(
            feature_names=["marker_feature"], device_group="marker_group"
        ),
        "marker_table_2": ParameterConstraints(["marker_type", "table_wise"]),
        "marker_unknown": ParameterConstraints(),
    }
    captured(live, path, live.planner(MarkerPlanner), hash_names=True)
    assert "marker" not in path.read_text().lower()
    captured(live, path)
    assert "marker_table_1" in path.read_text()
    assert "0.1234" not in path.read_text()


def test_an_errors_text_is_not_in_a_file_with_hashed_names(path):
    """The replay raises the error of the live planner, with its text."""
    live = script(bags("marker"))
    live.constraints = {"marker_1": ParameterConstraints(["grid_shard"], ["dense"])}
    assert captured(live, path, hash_names=True).error == "RuntimeError"
    assert "marker" not in path.read_text()
    problem = built(path)
    assert problem.live.decision == "none, RuntimeError"
    with pytest.raises(RuntimeError, match="No available sharding type"):
        FAMILY.find("as-captured").prepared(problem).run()
