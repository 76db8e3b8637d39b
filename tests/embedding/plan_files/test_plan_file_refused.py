"""A plan file is read as the first release wrote it, or refused in a sentence."""

import copy
import json
from contextlib import suppress

import pytest
import torch
from golden_plan import GOLDEN, SAID, as_said, decisions, document_of, first, said_again
from hypothesis import example, given, settings, strategies as st
from random_models import collection
from torch import nn
from torchrec.distributed.planner.types import Topology
from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets

from harness.contract import UsageError
from planners.embedding.decision import Plan, validate
from planners.embedding.plan_files.loader import JsonPlanLoader, plan_constraints
from planners.embedding.planning import document


@pytest.fixture
def golden(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(GOLDEN.read_bytes())
    return path


def test_a_file_of_version_1_stays_readable(golden_problem, usable):
    loader = JsonPlanLoader(GOLDEN, golden_problem.module, 4, usable)
    options = list(loader.load().values())
    validate(golden_problem, Plan(tuple(options)))
    assert decisions(options) == as_said(SAID)
    written = json.loads(json.dumps(document(golden_problem, Plan(tuple(options)))))
    assert written["quality"].keys() == SAID["quality"].keys()
    # How near a bound comes to the plan is not the file's matter.
    assert {**written, "quality": None} == {**SAID, "quality": None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file"),
        ("{", "is no plan: it must be JSON"),
        ("[]", "its format must be 'shardbench-plan'"),
        ('{"format": "other"}', "its format must be 'shardbench-plan'"),
        ('{"format": "shardbench-plan", "version": 9}', "of version 9; it must be 1"),
        ('{"format": "shardbench-plan", "version": true}', "of version True; it must be 1"),
        ('{"format": "shardbench-plan", "version": 1}', "missing required field `world_size`"),
        ('{"format": "shardbench-plan", "version": 1, "tables": []}', "length >= 1"),
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
    """Return a function that changes fields of a table."""
    return lambda table: table.update(fields)


def shard(number, **fields):
    """Return a function that changes fields of a table's shard, or the shard's bytes."""

    def change(table):
        changed = table["shards"][number]
        (changed["storage_bytes"] if "hbm" in fields else changed).update(fields)

    return change


def onto(*ranks):
    def change(table):
        for shard, rank in zip(table["shards"], ranks, strict=False):
            shard["rank"] = rank

    return change


def double(table):
    table["shards"].append(copy.deepcopy(table["shards"][0]))


def with_an_empty_shard(table):
    double(table)
    table["shards"][-1].update(size=[0, 64], rank=1)


def uneven(table):
    first, second, *_ = table["shards"]
    first["size"][0] += 1
    second["size"][0] -= 1
    second["offset"][0] += 1


def leave(table):
    table["shards"][-1]["offset"][0] += 1


@pytest.mark.parametrize(
    ("sharding_type", "change", "message"),
    [
        ("row_wise", shard(1, size=[0, 0]), "Shard 1 of table .* must be .* not 0 x 0 at "),
        ("row_wise", shard(1, offset=[0, 0]), "Shard 1 of table .* must be .* not .* at row 0, "),
        ("row_wise", leave, "Shard 3 of table .* must be .* at row "),
        ("row_wise", double, "must have 4 shards, not 5"),
        ("row_wise", onto(0, 0, 0, 0), "Shard 1 of table .* must be on rank 1, not 0"),
        ("row_wise", onto(4), "table table_. is on rank 4 of 4"),
        ("row_wise", uneven, "Shard 0 of table .* must be .* at row 0, column 0, not "),
        ("row_wise", with_an_empty_shard, "must have 4 shards, not 5"),
        ("row_wise", having(sharding_type="column_wise"), "which is column_wise, must be "),
        ("row_wise", having(sharding_type="data_parallel"), "The kernel .* must be one of dense"),
        ("row_wise", having(compute_kernel="quant"), "The kernel of table .* not 'quant'"),
        ("row_wise", shard(0, hbm=2**63), "hbm`, table table_"),
        ("row_wise", shard(0, hbm=0), "Shard 0 of table .* has weights of .* bytes"),
        ("row_wise", having(other=1), "unknown field `other`"),
        ("row_wise", lambda table: table.pop("rows"), "missing required field `rows`"),
        ("table_row_wise", onto(3, 2, 1, 0), "Shard 0 of table .* must be on rank 0, not 3"),
    ],
)
def test_a_plan_that_would_not_train_is_refused_by_table_and_shard(
    golden, sharding_type, change, message
):
    said_again(golden, lambda said: change(first(said, sharding_type)))
    with pytest.raises(UsageError, match=f"plan.json .*({message})") as refused:
        plan_constraints(golden)
    assert "table_" in str(refused.value)
    assert str(refused.value).count(". ") == 0


def test_a_table_that_is_data_parallel_is_whole_on_every_rank(golden):
    def whole(said):
        table = first(said, "row_wise")
        table.update(sharding_type="data_parallel", compute_kernel="dense")
        size = [table["rows"], table["dim"]]
        for shard in table["shards"]:
            shard.update(size=size, offset=[0, 0], storage_bytes={"hbm": 2**44, "ddr": 0})

    said_again(golden, whole)
    assert ["data_parallel"] in [each.sharding_types for each in plan_constraints(golden).values()]
    said_again(golden, lambda said: first(said, "data_parallel", "dense")["shards"].pop())
    with pytest.raises(UsageError, match="which is data_parallel, must have 4 shards, not 3"):
        plan_constraints(golden)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"world_size": 8}, "is for 4 ranks, not for 8"),
        ({"local_world_size": 2}, "which is table_row_wise, must be "),
        ({"compute_device": "cpu"}, "The kernel of table .* on cpu, not 'fused_uvm_caching'"),
        ({"hbm_cap": 2**30}, f"Rank . needs .* bytes of HBM and has {2**30}"),
        ({"ddr_cap": 2**30}, f"Rank . needs .* bytes of DDR and has {2**30}"),
    ],
)
def test_a_plan_is_checked_against_the_topology_that_it_is_loaded_for(
    golden_problem, golden, changed, message
):
    wanted = {"world_size": 4, "local_world_size": 4, "compute_device": "cuda"}
    topology = Topology(**{**wanted, "hbm_cap": 2**40, "ddr_cap": 2**42, **changed})
    with pytest.raises(UsageError, match=message):
        JsonPlanLoader(golden, golden_problem.module, topology=topology)


@pytest.mark.parametrize("load_factor", [0, 0.0, 1, 7.5])
def test_a_cache_must_be_a_part_of_its_table_where_the_kernel_has_one(golden, load_factor):
    """Torchrec refuses other load factors with this kernel, and ignores them with others."""
    kernel = "fused_uvm_caching"
    said_again(golden, lambda said: first(said, "row_wise").update(cache_load_factor=load_factor))
    within = plan_constraints(golden)[first(json.loads(golden.read_text()), "row_wise")["name"]]
    assert within.cache_params.load_factor == load_factor
    assert type(within.cache_params.load_factor) is type(load_factor)
    cached = next(t for t in SAID["tables"] if t["compute_kernel"] == kernel)["sharding_type"]
    said_again(golden, lambda said: first(said, cached, kernel).update(cache_load_factor=0))
    with pytest.raises(UsageError, match=r"load factor of table .* must be between 0 and 1"):
        plan_constraints(golden)


def test_a_shard_without_rows_is_where_torchrec_makes_one_and_not_on_a_cpu(tmp_path):
    model = collection({"t": (5, 8)})

    def load(rows, device):
        boxes = [(count, 8, sum(rows[:rank]), 0, rank) for rank, count in enumerate(rows)]
        said = document_of([("t", 5, 8, "row_wise", boxes)], 4, 4)
        (tmp_path / "plan.json").write_text(json.dumps(said))
        topology = Topology(world_size=4, compute_device=device, hbm_cap=2**20, ddr_cap=2**20)
        return JsonPlanLoader(tmp_path / "plan.json", model, topology=topology).load()

    assert len(load([2, 2, 1, 0], "cuda")) == 1
    with pytest.raises(UsageError, match="Shard 3 of table t is empty"):
        load([2, 2, 1, 0], "cpu")
    with pytest.raises(UsageError, match=r"Shard 2 of table t, .* must be 1 x 8 at row 4"):
        load([2, 2, 0, 1], "cuda")


def places(value, here=()):
    """Return the path of keys to every value of a document."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in pairs:
        yield (*here, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*here, key))


def value_at(document, place):
    for key in place:
        document = document[key]
    return document


PLACES = list(places(SAID))


@settings(max_examples=300, deadline=None)
@given(
    changes=st.lists(
        st.tuples(
            st.sampled_from(PLACES),
            st.integers(-2, 6)
            | st.sampled_from([True, None, 0.5, 1e30, 2**50, 2**63, 10**400, "", "table_1", [], {}])
            | st.sampled_from(PLACES).map(lambda place: value_at(SAID, place)),
        ),
        min_size=1,
        max_size=3,
    )
)
@example(changes=[(("local_world_size",), 1)])
def test_a_file_with_changed_fields_is_a_plan_or_refused(
    golden_problem, usable, tmp_path_factory, changes
):
    said = copy.deepcopy(SAID)
    for (*outer, last), value in changes:
        with suppress(LookupError, TypeError):
            value_at(said, outer)[last] = copy.deepcopy(value)
    path = tmp_path_factory.getbasetemp() / "plan.json"
    path.write_text(json.dumps(said))
    loader, refusal = None, f"{path.name} is read"
    try:
        loader = JsonPlanLoader(path, golden_problem.module, topology=usable)
    except UsageError as error:
        refusal = str(error)
    assert path.name in refusal
    assert refusal.isprintable()
    if loader is None:
        return
    options = list(loader.load().values())
    validate(golden_problem, Plan(tuple(options)))
    assert decisions(options) == as_said(said)
    within = plan_constraints(path)
    for table in said["tables"]:
        cut = calculate_shard_sizes_and_offsets(
            torch.empty(table["rows"], table["dim"], device="meta"),
            4,
            4,
            table["sharding_type"],
            within[table["name"]].min_partition,
        )
        assert [shard["size"] for shard in table["shards"]] == cut[0]
        assert [shard["offset"] for shard in table["shards"]] == cut[1]
