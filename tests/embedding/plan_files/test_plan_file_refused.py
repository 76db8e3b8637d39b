"""A plan file is read as the first release wrote it, or refused in a sentence."""

import copy
import json
from contextlib import suppress

import built_problem
import pytest
import torch
from golden_plan import GOLDEN, SAID, decisions, document_of
from hypothesis import example, given, settings, strategies as st
from random_models import collection
from torch import nn
from torchrec.distributed.planner.types import Topology
from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets

from harness.contract import UsageError
from planners.embedding.decision import Plan, validate
from planners.embedding.plan_files.document import parse_plan
from planners.embedding.plan_files.loader import JsonPlanLoader, plan_constraints
from planners.embedding.plan_files.table import PlanTable
from planners.embedding.planning import document

CACHED = "fused_uvm_caching"


@pytest.fixture(scope="module")
def problem():
    return built_problem.problem("synthetic[tables=8,seed=6,memory=tight]", gpus=4)


@pytest.fixture
def changed(tmp_path):
    """Return a function that writes the golden plan with a change of the first such table."""

    def write(change, sharding_type="row_wise", kernel="fused"):
        said, kind = copy.deepcopy(SAID), (sharding_type, kernel)
        tables = {(t["sharding_type"], t["compute_kernel"]): t for t in reversed(said["tables"])}
        change(tables[kind])
        (tmp_path / "plan.json").write_text(json.dumps(said))
        return tmp_path / "plan.json", tables[kind]

    return write


def test_a_file_of_version_1_stays_readable_and_is_written_again(problem):
    loader = JsonPlanLoader(GOLDEN, problem.module, 4, problem.reserved())
    options = tuple(loader.load().values())
    validate(problem, Plan(options))
    assert decisions(options) == decisions(parse_plan(GOLDEN, GOLDEN.read_bytes()).tables)
    written = json.loads(json.dumps(document(problem, Plan(options[::-1]))))
    assert written["quality"].keys() == SAID["quality"].keys()
    # How near a bound comes to the plan is not the file's matter.
    assert {**written, "quality": None} == {**SAID, "quality": None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file"),
        ("{", "is no plan: it must be JSON"),
        ("[]", "its format must be 'shardbench-plan'"),
        ('{"format": "shardbench-plan", "version": 9}', "of version 9; it must be 1"),
        ('{"format": "shardbench-plan", "version": true}', "of version True; it must be 1"),
        ('{"format": "shardbench-plan", "version": 1}', "missing required field `world_size`"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_in_a_sentence(tmp_path, text, message):
    path = tmp_path / "plan.json"
    if text is not None:
        path.write_text(text)
    for read in (lambda: JsonPlanLoader(path, nn.Identity()), lambda: plan_constraints(path)):
        with pytest.raises(UsageError, match=f"plan.json.*{message}"):
            read()


def having(**fields):
    return lambda table: table.update(fields)


def shard(number, **fields):
    return lambda table: table["shards"][number].update(fields)


def storing(hbm):
    return lambda table: table["shards"][0]["storage_bytes"].update(hbm=hbm)


def onto(*ranks):
    return lambda table: [
        shard.update(rank=rank) for shard, rank in zip(table["shards"], ranks, strict=False)
    ]


def double(table):
    table["shards"].append(copy.deepcopy(table["shards"][0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shard(1, size=[0, 0]), "Shard 1 of table .* must be .*, not 0 x 0 at row"),
        (shard(1, offset=[0, 0]), "Shard 1 of table .* must be .*, not .* at row 0, column 0"),
        (double, "must have 4 shards, not 5"),
        (onto(0, 0, 0, 0), "Shard 1 of table .* must be on rank 1, not 0"),
        (onto(4), "table table_. is on rank 4 of 4"),
        (having(sharding_type="column_wise"), "which is column_wise, must be "),
        (having(sharding_type="data_parallel"), "The kernel .* must be one of dense"),
        (having(compute_kernel="quant"), "The kernel of table .* not 'quant'"),
        (storing(2**63), "hbm`, table table_"),
        (storing(0), "Shard 0 of table .* has weights of .* bytes"),
        (having(other=1), "unknown field `other`"),
        (lambda table: table.pop("rows"), "missing required field `rows`"),
        (having(compute_kernel=CACHED, cache_load_factor=0), "must be between 0 and 1"),
    ],
)
def test_a_plan_that_would_not_train_is_refused_by_table_and_shard(changed, change, message):
    path, _ = changed(change)
    with pytest.raises(UsageError, match=f"plan.json .*({message})") as refused:
        plan_constraints(path)
    assert "table_" in str(refused.value)
    assert str(refused.value).count(". ") == 0


def test_a_shard_of_rows_is_on_its_place_in_a_host(changed):
    path, _ = changed(onto(3, 2, 1, 0), "table_row_wise")
    with pytest.raises(UsageError, match=r"Shard 0 of table .* must be on rank 0, not 3"):
        plan_constraints(path)


@pytest.mark.parametrize(
    ("differing", "message"),
    [
        ({"world_size": 8}, "is for 4 ranks, not for 8"),
        ({"local_world_size": 2}, "which is table_row_wise, must be "),
        ({"compute_device": "cpu"}, "The kernel of table .* on cpu, not 'fused_uvm_caching'"),
        ({"hbm_cap": 2**30}, f"Rank . needs .* bytes of HBM and has {2**30}"),
        ({"ddr_cap": 2**30}, f"Rank . needs .* bytes of DDR and has {2**30}"),
    ],
)
def test_a_plan_is_checked_against_the_topology_that_it_is_loaded_for(problem, differing, message):
    wanted = {"world_size": 4, "local_world_size": 4, "compute_device": "cuda"}
    topology = Topology(**{**wanted, "hbm_cap": 2**40, "ddr_cap": 2**42, **differing})
    with pytest.raises(UsageError, match=message):
        JsonPlanLoader(GOLDEN, problem.module, topology=topology)


@pytest.mark.parametrize("load_factor", [0, 0.0, 1, 7.5])
def test_a_load_factor_of_a_kernel_without_a_cache_comes_back_as_it_is(changed, load_factor):
    """Torchrec ignores it there, and hashes its text."""
    path, table = changed(having(cache_load_factor=load_factor))
    loaded = plan_constraints(path)[table["name"]].cache_params.load_factor
    assert (loaded, type(loaded)) == (load_factor, type(load_factor))


def test_a_shard_without_rows_is_where_torchrec_makes_one_and_not_on_a_cpu(tmp_path):
    def load(rows, device):
        boxes = [(count, 8, sum(rows[:rank]), 0, rank) for rank, count in enumerate(rows)]
        said = document_of([("t", 5, 8, "row_wise", boxes)], 4, 4)
        (tmp_path / "plan.json").write_text(json.dumps(said))
        topology = Topology(world_size=4, compute_device=device, hbm_cap=2**20, ddr_cap=2**20)
        model = collection({"t": (5, 8)})
        return JsonPlanLoader(tmp_path / "plan.json", model, topology=topology).load()

    assert len(load([2, 2, 1, 0], "cuda")) == 1
    with pytest.raises(UsageError, match="Shard 3 of table t is empty"):
        load([2, 2, 1, 0], "cpu")
    with pytest.raises(UsageError, match=r"Shard 2 of table t, .* must be 1 x 8 at row 4"):
        load([2, 2, 0, 1], "cuda")


@pytest.mark.parametrize(
    ("kind", "shards", "fault"),
    [
        ("row_wise", [(5, 8, 0, 0, 0), (3, 8, 5, 0, 1)], ""),  # uneven, so no job can train it
        ("row_wise", [(5, 8, 0, 0, 0)], "24 of its weights are in none"),
        ("row_wise", [(5, 8, 0, 0, 0), (4, 8, 4, 0, 1)], "shards 0 and 1 overlap"),
        ("row_wise", [(5, 8, 0, 0, 0), (4, 8, 5, 0, 1)], "shard 1 is not inside"),
        ("data_parallel", [(8, 8, 0, 0, 0)], "not whole on every rank"),
    ],
)
def test_the_present_plan_must_tile_its_tables_but_not_train(tmp_path, kind, shards, fault):
    path = tmp_path / "old.json"
    path.write_text(json.dumps(document_of([("t", 8, 8, kind, shards)], 2, 2)))
    if fault:
        with pytest.raises(UsageError, match=f"old.json is a damaged plan: .* {fault}"):
            PlanTable.of(path)
    else:
        assert PlanTable.of(path).tables["t"].ranks == (0, 1)


def places(value, here=()):
    """Return the path of keys to every value of a document."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*here, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*here, key))


def value_at(document, place):
    for key in place:
        document = document[key]
    return document


PLACES = st.sampled_from(list(places(SAID)))
VALUES = st.integers(-2, 6) | st.sampled_from(
    [True, None, 0.5, 1e30, 2**50, 2**63, 10**400, "", "table_1", [], {}]
)


@settings(max_examples=300, deadline=None)
@given(
    changes=st.lists(
        st.tuples(PLACES, VALUES | PLACES.map(lambda place: value_at(SAID, place))),
        min_size=1,
        max_size=3,
    )
)
@example(changes=[(("local_world_size",), 1)])
def test_a_file_with_changed_fields_is_a_plan_or_refused(problem, tmp_path_factory, changes):
    said = copy.deepcopy(SAID)
    for (*outer, last), value in changes:
        with suppress(LookupError, TypeError):
            value_at(said, outer)[last] = copy.deepcopy(value)
    path = tmp_path_factory.getbasetemp() / "plan.json"
    path.write_text(json.dumps(said))
    refusal = ""
    try:
        loader = JsonPlanLoader(path, problem.module, topology=problem.reserved())
    except UsageError as error:
        refusal = str(error)
    if refusal:
        assert path.name in refusal
        assert refusal.isprintable()
        return
    options = list(loader.load().values())
    validate(problem, Plan(tuple(options)))
    assert decisions(options) == decisions(parse_plan(path, path.read_bytes()).tables)
    within = plan_constraints(path)
    for option in options:
        tensor = torch.empty(option.tensor.shape, device="meta")
        width = within[option.name].min_partition
        cut = calculate_shard_sizes_and_offsets(tensor, 4, 4, option.sharding_type, width)
        assert [shard.size for shard in option.shards] == cut[0]
        assert [shard.offset for shard in option.shards] == cut[1]
