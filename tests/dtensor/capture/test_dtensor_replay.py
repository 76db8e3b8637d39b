"""A captured step is replayed under every variant, without values and memory."""

import copy
import json
import resource

import pytest
import torch
from captured_steps import STEPS, captured, problem_in
from hostile import change, changes, is_one_sentence, read_or_refused
from hypothesis import HealthCheck, given, settings
from small_world import EVERYWHERE, checked, counted, mesh_of, placed
from torch.distributed.tensor import Partial, Replicate, Shard

from harness.contract import UsageError
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.dtensor import FAMILY
from planners.dtensor.dispatch.torch_path import clear_torch_caches


@pytest.fixture(scope="module", params=STEPS)
def taken(request, tmp_path_factory):
    """Capture the second call of a step; return the file and torch's cache statistics."""
    path = tmp_path_factory.mktemp("steps") / f"{request.param}.json.gz"
    step = STEPS[request.param]()
    step()
    clear_torch_caches()
    captured(path, step)
    return path, torch._C._get_DTensor_sharding_propagator_cache_stats()


def held(path):
    return json.loads(path.read_text())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "step.json"


def _of_this_torch():
    """Return the variants that run on the installed torch, without those of real releases."""
    return [name for name in EVERYWHERE if not FAMILY.find(name).upstream]


def test_every_variant_decides_as_the_live_step_did(taken):
    problem = problem_in(taken[0])
    assert "not replayed" not in problem.facts()
    prints = set()
    for name in _of_this_torch():
        made = checked(name, problem)
        assert made.quality["unlike_recorded"] == 0, name
        prints.add(made.fingerprint)
    assert len(prints) == 1


def test_torch_finds_and_misses_as_many_decisions_as_in_the_live_step(taken):
    path, live = taken
    problem = problem_in(path, caches="cold")
    counters = checked("upstream", problem).counters
    hits, entries = live
    assert (counters["hits"], counters["cache_entries"]) == (hits, entries)
    assert counters["lookups"] == problem.facts()["ops"]


def test_a_replay_that_is_captured_is_the_file_again(taken, tmp_path):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    program = problem_in(taken[0]).program
    captured(first, program.step)
    captured(second, problem_in(first).program.step)
    assert second.read_text() == first.read_text()


def test_another_decision_than_the_live_one_is_counted(path):
    mesh = mesh_of(4)
    x = placed(mesh, counted(2, 4), Partial())
    captured(path, lambda: [torch.relu(x), x.t()])
    document = held(path)
    document["results"][0]["placements"] = ["S(0)"]
    document["calls"][0]["moves"] = [[["P(sum)"], ["S(0)"]]]
    path.write_text(json.dumps(document))
    assert checked("upstream", problem_in(path)).quality["unlike_recorded"] == 2


def test_ops_that_change_their_input_find_it_as_it_was(path):
    mesh = mesh_of(4)

    def step():
        for _ in range(3):
            x = placed(mesh, counted(2, 1, 4), Shard(2))
            x.squeeze_(1)
            x.add_(1.0)

    captured(path, step)
    problem = problem_in(path)
    assert problem.program.size == 6
    prepared = FAMILY.find("upstream").prepared(problem)
    with prepared.installed():
        for _ in range(3):
            prepared.begin()
            decision = prepared.run()
    assert [str(output.placements) for output in decision.outputs] == ["(Shard(dim=1),)"] * 2
    assert [tuple(output._local_tensor.shape) for output in decision.outputs] == [(2, 4)] * 2
    for name in ("before", "interned", "shape-class"):
        assert checked(name, problem).quality["unlike_recorded"] == 0


def test_an_op_that_reads_a_value_is_called_too(path):
    x = placed(mesh_of(4), torch.tensor(2.5), Replicate())
    captured(path, lambda: x.item())
    problem = problem_in(path)
    assert problem.facts()["ops"] == 1
    assert checked("upstream", problem).quality["unlike_recorded"] == 0


def test_calls_that_cannot_be_made_here_are_counted(path):
    x = placed(mesh_of(4), counted(2, 4), Shard(0))
    captured(path, lambda: [torch.relu(x), torch.sigmoid(x), torch.equal(x, x), torch.sigmoid(x)])
    document = held(path)
    document["calls"][1]["op"] = "nobodys.op.default"
    path.write_text(json.dumps(document))
    facts = problem_in(path).facts()
    assert facts["ops"] == 1
    assert facts["not replayed"] == "1 (needs values), 2 (no op that DTensor knows here)"


def test_the_first_calls_can_be_asked_for(taken):
    problem = problem_in(taken[0], calls="7")
    assert problem.facts()["ops"] == 7
    assert problem_in(taken[0], calls="1000000").facts()["ops"] > 30


def test_a_model_of_any_size_takes_no_memory(path):
    mesh = mesh_of(4)
    x = placed(mesh, counted(2, 4), Shard(0))
    captured(path, lambda: torch.relu(x) @ placed(mesh, counted(4, 4), Replicate()))
    document = held(path)
    large = 2**20
    for record in (*document["tensors"], *document["results"]):
        record["shape"] = [size * large for size in record["shape"]]
        record["stride"] = [step * large if step > 1 else 1 for step in record["stride"]]
    path.write_text(json.dumps(document))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert checked("upstream", problem_in(path)).quality["unlike_recorded"] == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # KiB


def test_it_runs_on_other_machines_with_as_many_gpus_and_no_others(taken):
    path, _ = taken
    ranks = FAMILY.brings(WorkloadSpec(str(path))).gpus
    problem = FAMILY.work.build(WorkloadSpec(str(path)), find_topology("dgx_h100", ranks))
    assert problem.facts()["ranks per host"] == ranks
    with pytest.raises(UsageError) as refused:
        FAMILY.work.build(WorkloadSpec(str(path)), find_topology("dgx_h100", 16))
    assert all(part in str(refused.value) for part in (str(path), f"-n {ranks}"))


def test_a_file_is_called_by_its_name_and_its_content(taken):
    path, _ = taken
    label = FAMILY.label(WorkloadSpec(str(path), {"calls": "3"}))
    assert str(label).startswith(f"{path.name}#")
    assert str(label).endswith("[calls=3]")


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"caches": "hot"}, "one of cold, warm, not 'hot'."),
        ({"calls": "0"}, "must be a whole number of at least 1, not '0'."),
        ({"dims": "2"}, "Unknown parameter of workload "),
    ],
)
def test_an_impossible_parameter_is_named(parameters, named, taken):
    with pytest.raises(UsageError) as refused:
        FAMILY.label(WorkloadSpec(str(taken[0]), parameters))
    assert named in str(refused.value)


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "step.json"
    mesh = mesh_of(2, 2)
    x = placed(mesh, counted(4, 4), Shard(0), Partial())

    def step():
        torch.relu(x)
        torch.stack(x.split(2))
        torch.ones_like(x, dtype=torch.float16) * 2.5
        torch.clamp(x, max=float("inf"))

    captured(path, step)
    return held(path)


def written(path, document):
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("way", "value", "named"),
    [
        (("ranks",), 10**6, "'ranks': Expected `int` <= 131072."),
        (("ranks",), 3, "a mesh must have no rank beyond those of the world, 3."),
        (("ranks_per_host",), 0, "'ranks_per_host': Expected `int` >= 1."),
        (("meshes", 0, "strides"), [1, 1], "'meshes[0]': a mesh must hold no rank twice."),
        (("meshes", 0, "strides"), [4, 1], "a mesh must have no rank beyond those of the world, 4"),
        (("meshes", 0, "shape"), [], "'meshes[0].shape': Expected `array` of"),
        (("meshes", 0, "shape"), [2], "'strides' must have an entry for each dimension of 'shape'"),
        (("meshes", 0, "names"), ["a", "a"], "'names' must name each dimension of the mesh once"),
        (("tensors", 0, "mesh"), 1, "an index must be below the length of 'meshes'"),
        (("tensors", 0, "shape"), [2**40, 2**40], "a tensor must have at most"),
        (("tensors", 0, "shape"), [2**41, 4], "'tensors[0].shape[0]': Expected `int` <= 109951"),
        (("tensors", 0, "stride"), [1], "'stride' must have an entry for each dimension"),
        (("tensors", 0, "dtype"), "os.system('')", "'tensors[0].dtype': "),
        (("tensors", 0, "placements"), [["shard", 2], ["replicate"]], "a dimension of 'shape'"),
        (("tensors", 0, "placements"), [["replicate"]], "'placements' must have an entry for each"),
        (("tensors", 0, "placements"), [["partial", "x"]], "'tensors[0].placements[0][1]': "),
        (("tensors", 0, "requires_grad"), 1, "'tensors[0].requires_grad': Expected `bool`, got"),
        (("results", 0, "placements"), [1], "'results[0].placements[0]': Expected `str`, got"),
        (("calls", 0, "op"), "import os", "'calls[0].op': "),
        (("calls", 0, "args", 0), {"tensor": 99}, "an index must be below the length of 'tensors'"),
        (("calls", 0, "args", 0), {"path": "/etc"}, "'calls[0].args[0]': Object contains unk"),
        (("calls", 0, "args", 0), {"index": 1}, "one field, or number and index"),
        (("calls", 0, "args"), {}, "'calls[0].args': Expected `array`, got `object`."),
        (("calls", 0, "kwargs"), [], "'calls[0].kwargs': Expected `object`, got `array`."),
        (("calls", 0, "results"), [-1], "'calls[0].results[0]': Expected `int` >= 0."),
        (("calls", 0, "results"), [99], "an index must be below the length of 'results'"),
        (("calls", 0, "moves"), [[["R"]]], "'calls[0].moves[0]': Expected `array` of length 2"),
        (("sequence",), [], "'sequence': Expected `array` of length >= 1."),
        (("sequence",), [99], "an index must be below the length of 'calls'"),
        (("left_out",), {"a": "many"}, "'left_out[...]': Expected `int`, got `str`."),
        (("left_out",), {"a\x1b": 1}, "'left_out' must hold reasons without control characters"),
        (("shardbench", "family"), "dimspec", "was captured from family 'dimspec', not"),
        (("shardbench",), 1, "is no file that shardbench.capture wrote."),
    ],
)
def test_an_impossible_value_is_named(way, value, named, document, path):
    changed = copy.deepcopy(document)
    change(changed, [(way, "put", value)])
    with pytest.raises(UsageError) as refused:
        FAMILY.brings(WorkloadSpec(str(written(path, changed))))
    assert named in str(refused.value)
    assert str(refused.value).startswith(str(path))
    assert is_one_sentence(str(refused.value))


def test_a_file_of_which_nothing_can_be_called_is_refused(document, path):
    changed = copy.deepcopy(document)
    for tensor in changed["tensors"]:
        tensor["dtype"] = "float7"
    with pytest.raises(UsageError) as refused:
        problem_in(written(path, changed))
    assert all(part in str(refused.value) for part in (str(path), "no such dtype here"))


def test_a_tensor_is_not_split_into_all_that_there_could_be(document, path):
    changed = copy.deepcopy(document)
    for tensor in changed["tensors"]:
        tensor["shape"], tensor["stride"] = [2**40, 1], [1, 1]
    split = next(call for call in changed["calls"] if call["op"] == "aten.split.Tensor")
    split["args"][1] = 1
    assert "too many results" in str(problem_in(written(path, changed)).facts()["not replayed"])


def test_any_change_to_a_file_is_taken_or_refused_in_a_sentence(document, path):
    @settings(
        max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(wanted=changes({key: document[key] for key in document if key != "shardbench"}))
    def check(wanted):
        changed = copy.deepcopy(document)
        change(changed, wanted)
        problem = read_or_refused(lambda: problem_in(written(path, changed)))
        assert problem is None or problem.program.step() is not None

    check()
