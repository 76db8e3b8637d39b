"""A plan file that cannot be trained is refused."""

import copy
import json

import pytest
from golden_plan import GOLDEN, SAID, as_said, decisions, document_of, first, said_again
from random_models import collection
from torchrec.distributed.planner.types import Topology

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
    said = json.loads(GOLDEN.read_text())
    assert decisions(options) == as_said(said)
    written = json.loads(json.dumps(document(golden_problem, Plan(tuple(options)))))
    assert written.keys() == said.keys()
    assert written["quality"].keys() == said["quality"].keys()
    # How near a bound comes to the plan is not the file's matter.
    assert {**written, "quality": None} == {**said, "quality": None}


def having(**fields):
    """Return a function that changes fields of a table."""
    return lambda table: table.update(fields)


def shard(number, **fields):
    """Return a function that changes fields of a table's shard, or the shard's bytes."""

    def change(table):
        held = table["shards"][number]
        (held["storage_bytes"] if "hbm" in fields else held).update(fields)

    return change


def shorten(table):
    table["shards"][-1]["size"][0] -= 1


def double(table):
    table["shards"].append(copy.deepcopy(table["shards"][0]))


def drop(table):
    del table["shards"][1]


def leave(table):
    table["shards"][-1]["offset"][0] += 1


def onto(*ranks):
    def change(table):
        for shard, rank in zip(table["shards"], ranks, strict=False):
            shard["rank"] = rank

    return change


def uneven(table):
    first, second, *_ = table["shards"]
    first["size"][0] += 1
    second["size"][0] -= 1
    second["offset"][0] += 1


def with_an_empty_shard(table):
    double(table)
    table["shards"][-1].update(size=[0, 64], rank=1)


def in_rows(table):
    """Replace a table's only column shard by two shards of half its rows."""
    rows, columns = table["rows"], table["dim"]
    half = table["shards"][0]
    table["shards"] = [
        {**half, "size": [rows // 2, columns], "offset": [0, 0]},
        {**half, "size": [rows - rows // 2, columns], "offset": [rows // 2, 0]},
    ]


@pytest.mark.parametrize(
    ("sharding_type", "change", "message"),
    [
        ("row_wise", shorten, " 16 of its weights are in none"),
        ("row_wise", shard(1, size=[0, 0]), "do not tile it: .* of its weights are in none"),
        ("row_wise", shard(1, offset=[0, 0]), "do not tile it: shards 0 and 1 overlap"),
        ("row_wise", leave, "do not tile it: shard 3 is not inside"),
        ("row_wise", double, "do not tile it: shards 0 and 4 overlap"),
        ("row_wise", drop, "do not tile it: .* of its weights are in none"),
        ("row_wise", onto(0, 0, 0, 0), "Shard 1 of table .* must be on rank 1, not 0"),
        ("row_wise", onto(1, 0), "Shard 0 of table .* must be on rank 0, not 1"),
        ("row_wise", onto(4), "Shard 0 of table .* is on rank 4 of 4"),
        ("row_wise", uneven, "Shard 0 of table .* must be .* at row 0, column 0, not "),
        ("row_wise", lambda table: table["shards"].reverse(), "Shard 0 of table .* must be "),
        ("row_wise", with_an_empty_shard, "must have 4 shards, not 5"),
        ("row_wise", having(sharding_type="table_wise"), "which is table_wise, must be "),
        ("row_wise", having(sharding_type="column_wise"), "which is column_wise, must be "),
        (
            "row_wise",
            having(sharding_type="data_parallel"),
            "The kernel of table .* must be one of dense",
        ),
        ("row_wise", having(compute_kernel="dense"), "The kernel of table .* not 'dense'"),
        ("row_wise", having(compute_kernel="quant"), "The kernel of table .* not 'quant'"),
        ("row_wise", shard(0, hbm=2**63), "hbm`, table table_"),
        ("row_wise", shard(0, hbm=0), "Shard 0 of table .* has weights of .* bytes"),
        ("column_wise", in_rows, "Shard 0 of table .* must be "),
        ("column_wise", having(sharding_type="row_wise"), "which is row_wise, must "),
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
    assert ["data_parallel"] in [held.sharding_types for held in plan_constraints(golden).values()]
    said_again(golden, lambda said: drop(first(said, "data_parallel", "dense")))
    with pytest.raises(UsageError, match="is not whole on every rank"):
        plan_constraints(golden)


@pytest.mark.parametrize(
    "holder",
    [
        lambda said: said,
        lambda said: said["tables"][0],
        lambda said: said["tables"][0]["shards"][0],
        lambda said: said["tables"][0]["shards"][0]["storage_bytes"],
        lambda said: said["tables"][0]["shards"][0]["perf_ms"],
    ],
)
def test_fields_that_are_missing_or_unknown_are_named(golden, holder):
    said_again(golden, lambda said: holder(said).update(other=1))
    with pytest.raises(UsageError, match="unknown field `other`"):
        plan_constraints(golden)
    golden.write_bytes(GOLDEN.read_bytes())
    name = list(holder(SAID))[1]
    said_again(golden, lambda said: holder(said).pop(name))
    with pytest.raises(UsageError, match=f"missing required field `{name}`|of version None"):
        plan_constraints(golden)


def test_a_plan_is_checked_against_the_topology_that_it_is_loaded_for(golden_problem, golden):
    def loaded_on(**changed):
        wanted = {"world_size": 4, "local_world_size": 4, "compute_device": "cuda"}
        topology = Topology(**{**wanted, "hbm_cap": 2**40, "ddr_cap": 2**42, **changed})
        return JsonPlanLoader(golden, golden_problem.module, topology=topology)

    loaded_on()
    with pytest.raises(UsageError, match="is for 4 ranks, not for 8"):
        loaded_on(world_size=8)
    with pytest.raises(UsageError, match="which is table_row_wise, must be "):
        loaded_on(local_world_size=2)
    with pytest.raises(UsageError, match=r"The kernel of table .* on cpu, not 'fused_uvm_caching'"):
        loaded_on(compute_device="cpu")
    with pytest.raises(UsageError, match=f"Rank . needs .* bytes of HBM and has {2**30}"):
        loaded_on(hbm_cap=2**30)
    with pytest.raises(UsageError, match=f"Rank . needs .* bytes of DDR and has {2**30}"):
        loaded_on(ddr_cap=2**30)


@pytest.mark.parametrize("load_factor", [0, 0.0, 1, 7.5])
def test_a_cache_must_be_a_part_of_its_table_where_the_kernel_has_one(golden, load_factor):
    """Torchrec refuses other load factors with this kernel, and ignores them with others."""
    kernel = "fused_uvm_caching"
    said_again(golden, lambda said: first(said, "row_wise").update(cache_load_factor=load_factor))
    within = plan_constraints(golden)[first(json.loads(golden.read_text()), "row_wise")["name"]]
    assert within.cache_params.load_factor == load_factor
    assert type(within.cache_params.load_factor) is type(load_factor)
    cached = next(t for t in SAID["tables"] if t["compute_kernel"] == kernel)["sharding_type"]
    said_again(
        golden,
        lambda said: first(said, cached, kernel).update(cache_load_factor=load_factor),
    )
    with pytest.raises(UsageError, match=r"load factor of table .* must be between 0 and 1"):
        plan_constraints(golden)


def test_a_shard_without_rows_is_where_torchrec_makes_one_and_not_on_a_cpu(tmp_path):
    model = collection({"t": (5, 8)})

    def write(rows):
        boxes = [(count, 8, sum(rows[:rank]), 0, rank) for rank, count in enumerate(rows)]
        said = document_of([("t", 5, 8, "row_wise", boxes)], 4, 4)
        (tmp_path / "plan.json").write_text(json.dumps(said))

    def load(device):
        topology = Topology(world_size=4, compute_device=device, hbm_cap=2**20, ddr_cap=2**20)
        return JsonPlanLoader(tmp_path / "plan.json", model, topology=topology)

    write([2, 2, 1, 0])
    assert len(load("cuda").load()) == 1
    with pytest.raises(UsageError, match="Shard 3 of table t is empty"):
        load("cpu")
    write([2, 2, 0, 1])
    with pytest.raises(UsageError, match=r"Shard 2 of table t, .* must be 1 x 8 at row 4"):
        load("cuda")
