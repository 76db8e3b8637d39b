"""Workloads, files of recorded loads, plans, explanations and real releases."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from harness.contract import Question
from harness.model.errors import InfeasibleDecision, UsageError
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.experts import FAMILY
from planners.experts.implementation import build, fingerprint, quality, validate
from planners.experts.planning import PLANNING, explain
from planners.experts.problem import Placement

SMALL = "qwen3-235b[layers=2]"


def problem(workload=SMALL, gpus=16):
    """Return the problem of a workload on GPUs in hosts of eight."""
    return build(WorkloadSpec.parse(workload), find_topology("dgx_h100", gpus))


def placed(asked, name="few-moves"):
    """Return the decision of a variant."""
    return FAMILY.find(name).prepared(asked).run()


@pytest.mark.parametrize("name", ["deepseek-v3", "kimi-k2", "qwen3-235b", "gpt-oss-120b"])
def test_loads_are_drawn_from_the_seed(name):
    """Equal seeds give equal loads, with a placement in force and slots that fit the GPUs."""
    first, same, other = (problem(f"{name}[layers=2,seed={seed}]") for seed in (1, 1, 2))
    assert (first.loads == same.loads).all()
    assert (first.loads != other.loads).any()
    assert first.slots % 16 == 0
    assert first.previous is not None


def test_loads_are_read_alike_from_all_formats(tmp_path):
    """JSON, CSV and a tensor with the same loads are the same problem."""
    loads = np.arange(1, 33).reshape(2, 16)
    (tmp_path / "loads.json").write_text(json.dumps({"logical_count": loads.tolist()}))
    (tmp_path / "loads.csv").write_text("\n".join(",".join(map(str, row)) for row in loads))
    torch.save({"rank": 0, "logical_count": torch.tensor(loads)}, tmp_path / "loads.pt")
    for name in ("loads.json", "loads.csv", "loads.pt"):
        asked = problem(str(tmp_path / name), 4)
        assert (asked.loads == loads).all()
        assert asked.previous is None
        assert asked.slots == 20


STEP = {"loads": [[1, 2, 3, 4, 5, 6]], "placement": [[0, 1, 2, 3, 4, 5, 0, 1]]}


def captured(**changes):
    """Return the text of a captured file."""
    header = {"shardbench": {"version": 1, "family": "experts"}, "engine": "vllm"}
    sizes = {"gpus": 4, "slots": 8, "groups": 1, "nodes": 1, "steps": [STEP]}
    return json.dumps({**header, **sizes, **changes})


def test_a_captured_file_has_its_gpus_groups_and_placement(tmp_path):
    """A captured file brings its GPUs; its placement is in force on these GPUs alone."""
    path = tmp_path / "loads.json"
    path.write_text(captured(groups=2, nodes=2))
    spec = WorkloadSpec.parse(str(path))
    topology = FAMILY.brings(spec)
    assert (topology.gpus, topology.gpus_per_host) == (4, 2)
    asked = build(spec, topology)
    assert (asked.nodes, asked.previous) == (2, None), "its first placement has no groups"
    path.write_text(captured())
    assert build(spec, FAMILY.brings(spec)).previous is not None
    assert problem(str(path), 8).previous is None, "on other GPUs"
    assert FAMILY.brings(WorkloadSpec.parse(SMALL)) is None


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("qwen3", None, "did you mean"),
        ("qwen3-235b[groups=3]", None, "must divide 128 experts"),
        ("qwen3-235b[redundant=3]", None, "131 slots"),
        ("qwen3-235b[skew=0]", None, "'skew'"),
        ("loads.json", None, "loads.json"),
        ("loads.json", "{}", "no 'logical_count'"),
        ("loads.json", '{"logical_count": [[1], [1, 2]]}', "as many in each"),
        ("loads.json", "[]", "one JSON object"),
        ("loads.json", "", "JSON text"),
        ("loads.json", '{"logical_count": [[1, Infinity]]}', "not inf for expert 1 of layer 0"),
        ("loads.csv", "", "layers x experts"),
        ("loads.csv", "1,2,3\n\n1,2\n", "as many in each"),
        ("loads.csv", "first,second\n1,2\n", "line 1: each load must be a number"),
        ("loads.csv", "1,2\n3,-4\n", "not -4 for expert 1 of layer 1"),
        ("loads.csv", "1,nan\n", "not nan"),
        ("loads.csv", "1" * 200_000, "line 1"),
        ("loads.pt", "junk", "no tensor"),
        ("loads.json", captured(gpus=0), "'gpus'"),
        ("loads.json", captured(slots=9), "'slots' must divide"),
        ("loads.json", captured(slots=4), "slots for all experts"),
        ("loads.json", captured(steps=[]), "'steps'"),
        ("loads.json", captured(steps=[{"loads": [[-1.0]]}]), r"loads\[0\]\[0\]"),
        ("loads.json", captured(steps=[{**STEP, "placement": [[0, 1]]}]), "8 slots, not 1 x 2"),
        ("loads.json", captured(steps=[{**STEP, "placement": [[0], [0, 1]]}]), "as many slots"),
        ("loads.json", captured(steps=[{**STEP, "placement": [[7] * 8]}]), "from 0 to 5"),
    ],
)
def test_a_wrong_workload_is_bad_input(tmp_path, monkeypatch, name, content, said):
    """Each wrong name, parameter and file gets an error that names the fault."""
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=said):
        problem(name, 4 if "loads" in name else 16)


def test_a_placement_that_is_none_is_refused():
    """Too few slots, missing experts, wrong experts, and groups on two nodes are infeasible."""
    grouped = problem("qwen3-235b[layers=2,groups=8]")
    assert grouped.nodes == 2
    validate(grouped, placed(grouped))
    slots = placed(problem()).slots
    for asked, wrong in (
        (problem(), slots[:, :-1]),
        (problem(), slots * 0),
        (problem(), slots - 1),
        (grouped, slots),
    ):
        with pytest.raises(InfeasibleDecision):
            validate(asked, Placement(wrong))


def test_the_front_starts_from_a_decision_in_the_next_window():
    """The front has more fetches from point to point, the first one none."""
    asked = problem()
    made = placed(asked, "numpy")
    near = PLANNING.moving.near(asked, made)
    rated = [quality(*point) for point in PLANNING.moving.front(near)]
    assert [point["fetched"] for point in rated] == sorted(point["fetched"] for point in rated)
    assert rated[0]["fetched"] == 0
    assert rated[0]["imbalance"] == pytest.approx(quality(asked, made)["next_imbalance"])
    assert PLANNING.moving.near(problem("kimi-k2", 192), made) is None


def test_a_document_is_the_placement_in_force_of_the_next_plan(tmp_path):
    """A written plan limits the fetches of the next one, on the same GPUs."""
    asked = problem()
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(PLANNING.document(asked, placed(asked, "certified"))))
    near = PLANNING.moving.within(asked, path, 1.0, ())
    assert PLANNING.moving.moved(near, placed(near)) <= 1.0
    assert list(PLANNING.moving.front(PLANNING.moving.within(asked, path, float("inf"), ())))
    with pytest.raises(UsageError, match="GPUs"):
        PLANNING.moving.within(asked, path, 1.0, (3,))


def test_an_explanation_counts_replicas_and_fetches():
    """It has the experts of the asked rank, and better balances for more fetches."""
    asked = problem()
    made = placed(asked)
    told = explain(asked, made, Question(rank=3, other="numpy", other_decision=placed(asked)))
    assert told.document["rank"] == 3
    on_rank = set(made.slots[told.document["layer"]].reshape(16, -1)[3].tolist())
    assert {row[0] for row in told.document["experts"]} <= on_rank
    loads = [load for _, load in told.document["fetches"]]
    assert loads == sorted(loads, reverse=True)
    with pytest.raises(UsageError, match="rank 16"):
        explain(asked, made, Question(rank=16))


def test_one_more_gpu_is_explained_with_groups_on_their_nodes():
    """With groups, one more GPU on each node is rated by a placement that keeps groups together."""
    asked = replace(problem("qwen3-235b[layers=1,groups=8]"), previous=None)
    more = replace(asked, gpus=asked.gpus + 2)
    before, after = (
        placed(sized, "certified").gpu_loads(sized.loads, sized.gpus).max()
        for sized in (asked, more)
    )
    said = explain(asked, placed(asked, "certified"), Question()).sentences[1]
    assert said.startswith("One more GPU on each node")
    assert f"{(1 - after / before) * 100:.1f} %" in said


@pytest.mark.parametrize("workload", [SMALL, "qwen3-235b[layers=2,groups=8]", "kimi-k2[layers=2]"])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("sglang-0.5.9", marks=pytest.mark.upstreams("sglang-eplb-0.5.9")),
        pytest.param("vllm-0.33.0", marks=pytest.mark.upstreams("vllm-eplb-0.33.0")),
    ],
)
def test_the_real_balancers_decide_as_ours(name, workload):
    """A release makes the decision of the variant that it must equal."""
    asked = problem(workload)
    variant = FAMILY.find(name)
    prepared = variant.prepared(asked)
    try:
        made = prepared.run().decision
    finally:
        prepared.close()
    assert fingerprint(made) == fingerprint(placed(asked, variant.same_as))
