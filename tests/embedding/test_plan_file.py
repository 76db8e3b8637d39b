"""Plans written as JSON, and loaded into a training job's own model."""

import copy
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import PlannerError, Topology
from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from harness.contract import UsageError, WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding import FAMILY
from planners.embedding.decision import Plan, validate
from planners.embedding.drop_in.planner import Planner
from planners.embedding.plan_files.loader import JsonPlanLoader, plan_constraints
from planners.embedding.planning import document
from planners.embedding.problem import EmbeddingProblem, build
from planners.embedding.quality import quality
from planners.embedding.torchrec_objects import ModelParallelSharder


@pytest.fixture(scope="module")
def problem() -> EmbeddingProblem:
    return build(
        WorkloadSpec.parse("synthetic[tables=12,seed=7,memory=tight]"),
        find_topology("dgx_a100_80gb", 16),
    )


@pytest.fixture(scope="module")
def plan(problem) -> Plan:
    return FAMILY.find("dp-torchrec").prepared(problem).run()


@pytest.fixture
def path(problem, plan, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document(problem, plan)))
    return path


class Model(nn.Module):
    """A job's model with a few tables in an EmbeddingCollection, and none where it was planned."""

    def __init__(self, tables, sequences=()):
        super().__init__()
        meta = torch.device("meta")
        bags = [table for table in tables if table["name"] not in sequences]
        self.sparse = nn.ModuleDict({"bags": nn.ModuleList([nn.Identity()])})
        self.sparse["bags"].append(
            EmbeddingBagCollection(
                tables=[EmbeddingBagConfig(**table) for table in bags], device=meta
            )
        )
        for table in tables:
            if table["name"] in sequences:
                self.sparse[f"sequence_{table['name']}"] = EmbeddingCollection(
                    tables=[EmbeddingConfig(**table)], device=meta
                )
        self.over = nn.Linear(1, 1)


def configs(problem):
    return [
        {
            "name": table.name,
            "num_embeddings": table.rows,
            "embedding_dim": table.dim,
            "data_type": DataType.FP32,
            "feature_names": [table.name],
        }
        for table in problem.tables[::-1]
    ]


def loaded(problem, loader, model, within, kind=EmbeddingShardingPlanner):
    """Plan a model with a loader; return the planner and its plan."""
    planner = kind(
        topology=problem.topology,
        constraints=within,
        storage_reservation=problem.storage_reservation(),
        stats=[],
        plan_loader=loader,
    )
    sharding_plan = planner.plan(model, [ModelParallelSharder(), EmbeddingCollectionSharder()])
    return planner, sharding_plan


def decisions(options):
    return {
        option.name: (
            option.sharding_type,
            option.compute_kernel,
            [(shard.size, shard.offset, shard.rank) for shard in option.shards],
        )
        for option in options
    }


@pytest.mark.parametrize("kind", [EmbeddingShardingPlanner, Planner])
@pytest.mark.parametrize("constrained", [True, False])
def test_a_job_gets_the_plan_without_a_search(problem, plan, path, constrained, kind):
    sequence = next(
        option.name
        for option in plan.options
        if option.sharding_type in ("table_wise", "column_wise", "row_wise")
    )
    model = Model(configs(problem), [sequence])
    within = plan_constraints(path) if constrained else problem.constraints
    planner, sharding_plan = loaded(problem, JsonPlanLoader(path, model, 16), model, within, kind)
    assert decisions(planner._best_plan) == decisions(plan.options)
    assert planner._num_proposals == 0
    assert set(sharding_plan.plan) == {"sparse.bags.1", f"sparse.sequence_{sequence}"}
    placed = {
        name: (each.sharding_type, each.compute_kernel, each.ranks)
        for module_plan in sharding_plan.plan.values()
        for name, each in module_plan.items()
    }
    assert placed == {
        option.name: (
            option.sharding_type,
            option.compute_kernel,
            [shard.rank for shard in option.shards],
        )
        for option in plan.options
    }


def test_with_its_constraints_a_planner_enumerates_the_options_of_the_plan_alone(problem, path):
    model = Model(configs(problem))
    planner, _ = loaded(problem, JsonPlanLoader(path, model), model, plan_constraints(path))
    assert len(planner._enumerator.last_stored_search_space) == len(problem.tables)


def test_narrow_columns_and_cache_sizes_come_back_through_the_constraints(problem, path):
    said = json.loads(path.read_text())
    table = next(table for table in said["tables"] if table["dim"] == 64)
    shard = table["shards"][0]
    table["sharding_type"], table["compute_kernel"] = "column_wise", "fused_uvm_caching"
    table["cache_load_factor"] = 0.3
    table["shards"] = [
        {**shard, "size": [table["rows"], 32], "offset": [0, column], "rank": column // 32}
        for column in (0, 32)
    ]
    path.write_text(json.dumps(said))
    model = Model(configs(problem))
    _, sharding_plan = loaded(problem, JsonPlanLoader(path, model), model, plan_constraints(path))
    placed = sharding_plan.plan["sparse.bags.1"][table["name"]]
    assert (placed.ranks, placed.cache_params.load_factor) == ([0, 1], 0.3)
    with pytest.raises(PlannerError, match="not all search space is covered"):
        loaded(problem, JsonPlanLoader(path, model), model, problem.constraints)


def test_the_document_says_what_was_decided_and_how_good_it_is(problem, plan):
    said = document(problem, plan)
    assert json.loads(json.dumps(said)) == said
    assert said["tables"] == document(problem, Plan(plan.options[::-1]))["tables"]
    assert (said["world_size"], said["local_world_size"]) == (16, 8)
    assert said["quality"] == quality(problem, plan)
    assert [table["name"] for table in said["tables"]] == [table.name for table in problem.tables]
    options = {option.name: option for option in plan.options}
    for table, written in zip(problem.tables, said["tables"], strict=True):
        assert (written["rows"], written["dim"]) == (table.rows, table.dim)
        shards = options[table.name].shards
        assert [shard["rank"] for shard in written["shards"]] == [shard.rank for shard in shards]
        for shard, expected in zip(written["shards"], shards, strict=True):
            assert shard["storage_bytes"]["hbm"] == expected.storage.hbm
            assert shard["perf_ms"]["fwd_compute"] == expected.perf.fwd_compute


def test_the_estimates_come_back_and_each_load_gives_new_shards(problem, plan, path):
    loader = JsonPlanLoader(path, Model(configs(problem)))
    first, second = loader.load(), loader.load()
    estimates = {option.name: option.shards for option in plan.options}
    assert {option.name: option.shards for option in first.values()} == estimates
    next(iter(first.values())).shards[0].rank = None
    assert {option.name: option.shards for option in second.values()} == estimates


def test_the_plan_has_an_identity_and_no_context(problem, path):
    loader = JsonPlanLoader(path, Model(configs(problem)))
    assert loader.plan_context_hash() is None
    assert loader.get_plan_id().startswith("plan.json#")
    assert loader.get_plan_id() == JsonPlanLoader(path, Model(configs(problem))).get_plan_id()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_embeddings": 7}, "table table_11 of .* not of 7 x "),
        ({"embedding_dim": 12}, "table table_11 of .* not of .* x 12 fp32"),
        ({"data_type": DataType.FP16}, "table table_11 of .* not of .* fp16"),
        ({"name": "other"}, "does not place table other, which the model has"),
    ],
)
def test_a_table_that_differs_is_named(problem, path, change, message):
    first, *others = configs(problem)
    with pytest.raises(UsageError, match=f"plan.json .*{message}"):
        JsonPlanLoader(path, Model([{**first, **change}, *others]))


def test_a_table_that_the_model_lacks_is_named(problem, path):
    with pytest.raises(UsageError, match="table_11, which the model does not have"):
        JsonPlanLoader(path, Model(configs(problem)[1:]))


def test_a_table_that_is_there_twice_is_named(problem, path):
    model = Model(configs(problem))
    model.again = Model(configs(problem)[:1])
    with pytest.raises(UsageError, match="has table table_11 twice"):
        JsonPlanLoader(path, model)


def test_a_plan_for_other_ranks_is_refused(problem, path):
    with pytest.raises(UsageError, match="is for 16 ranks, not for 8"):
        JsonPlanLoader(path, Model(configs(problem)), 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file"),
        ("", "is no plan: it must be JSON"),
        ("{", "is no plan: it must be JSON"),
        ("[]", "its format must be 'shardbench-plan'"),
        ('{"format": "other"}', "its format must be 'shardbench-plan'"),
        ('{"format": "shardbench-plan", "version": 9}', "of version 9; it must be 1"),
        ('{"format": "shardbench-plan", "version": true}', "of version True; it must be 1"),
        ('{"format": "shardbench-plan", "version": 1.0}', "Expected `int`, got `float`"),
        ('{"format": "shardbench-plan", "version": 1}', "missing required field `world_size`"),
        ('{"format": "shardbench-plan", "version": 1, "tables": [{}]}', "missing required field"),
        ('{"format": "shardbench-plan", "version": 1, "tables": [1]}', "is a damaged plan: "),
        ('{"format": "shardbench-plan", "version": 1, "tables": []}', "length >= 1"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_in_a_sentence(tmp_path, text, message):
    path = tmp_path / "plan.json"
    if text is not None:
        path.write_text(text)
    for read in (lambda: JsonPlanLoader(path, nn.Identity()), lambda: plan_constraints(path)):
        with pytest.raises(UsageError, match=message) as raised:
            read()
        assert "plan.json" in str(raised.value)


def said_again(path, change):
    """Write a change of the document that a file holds back into it."""
    said = json.loads(path.read_text())
    change(said)
    path.write_text(json.dumps(said))


GOLDEN = Path(__file__).parent / "data" / "plan_version_1.json"  # as the first release wrote it


@pytest.fixture(scope="module")
def golden_problem() -> EmbeddingProblem:
    return build(
        WorkloadSpec.parse("synthetic[tables=8,seed=6,memory=tight]"),
        find_topology("dgx_a100_80gb", 4),
    )


@pytest.fixture(scope="module")
def usable(golden_problem) -> Topology:
    """What is left of the topology for the tables."""
    return golden_problem.storage_reservation().reserve(
        topology=golden_problem.topology,
        batch_size=golden_problem.batch_size,
        module=golden_problem.module,
        sharders=golden_problem.sharders,
        constraints=golden_problem.constraints,
    )


@pytest.fixture
def golden(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(GOLDEN.read_bytes())
    return path


def first(said, sharding_type, kernel="fused"):
    return next(
        table
        for table in said["tables"]
        if (table["sharding_type"], table["compute_kernel"]) == (sharding_type, kernel)
    )


def as_said(said):
    """Return the decisions that a document says, as `decisions` does those of options."""
    return {
        table["name"]: (
            table["sharding_type"],
            table["compute_kernel"],
            [(shard["size"], shard["offset"], shard["rank"]) for shard in table["shards"]],
        )
        for table in said["tables"]
    }


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


def shorten(table):
    table["shards"][-1]["size"][0] -= 1


def empty(table):
    table["shards"][1]["size"] = [0, 0]


def overlap(table):
    table["shards"][1]["offset"] = [0, 0]


def double(table):
    table["shards"].append(copy.deepcopy(table["shards"][0]))


def drop(table):
    del table["shards"][1]


def leave(table):
    table["shards"][-1]["offset"][0] += 1


def onto(*ranks):
    def put(table):
        for shard, rank in zip(table["shards"], ranks, strict=False):
            shard["rank"] = rank

    return put


def type_(sharding_type):
    return lambda table: table.update(sharding_type=sharding_type)


def kernel(name):
    return lambda table: table.update(compute_kernel=name)


def storage(**kinds):
    return lambda table: table["shards"][0]["storage_bytes"].update(kinds)


def uneven(table):
    first, second, *_ = table["shards"]
    first["size"][0] += 1
    second["size"][0] -= 1
    second["offset"][0] += 1


def in_other_order(table):
    table["shards"].reverse()


def with_an_empty_shard(table):
    table["shards"].append(copy.deepcopy(table["shards"][0]))
    table["shards"][-1].update(size=[0, 64], rank=1)


def in_rows(table):
    """Cut the one column of a table by rows."""
    rows, columns = table["rows"], table["dim"]
    half = copy.deepcopy(table["shards"][0])
    table["shards"] = [
        {**half, "size": [rows // 2, columns], "offset": [0, 0]},
        {**half, "size": [rows - rows // 2, columns], "offset": [rows // 2, 0]},
    ]


@pytest.mark.parametrize(
    ("sharding_type", "change", "message"),
    [
        ("row_wise", shorten, " 16 of its weights are in none"),
        ("row_wise", empty, "do not tile it: .* of its weights are in none"),
        ("row_wise", overlap, "do not tile it: shards 0 and 1 overlap"),
        ("row_wise", leave, "do not tile it: shard 3 is not inside"),
        ("row_wise", double, "do not tile it: shards 0 and 4 overlap"),
        ("row_wise", drop, "do not tile it: .* of its weights are in none"),
        ("row_wise", onto(0, 0, 0, 0), "Shard 1 of table .* must be on rank 1, not 0"),
        ("row_wise", onto(1, 0), "Shard 0 of table .* must be on rank 0, not 1"),
        ("row_wise", onto(4), "Shard 0 of table .* is on rank 4 of 4"),
        ("row_wise", uneven, "Shard 0 of table .* must be .* at row 0, column 0, not "),
        ("row_wise", in_other_order, "Shard 0 of table .* must be "),
        ("row_wise", with_an_empty_shard, "must have 4 shards, not 5"),
        ("row_wise", type_("table_wise"), "Shard 0 of table .* which is table_wise, must be "),
        ("row_wise", type_("column_wise"), "Shard 0 of table .* which is column_wise, must be "),
        ("row_wise", type_("data_parallel"), "The kernel of table .* must be one of dense"),
        ("row_wise", kernel("dense"), "The kernel of table .* not 'dense'"),
        ("row_wise", kernel("quant"), "The kernel of table .* not 'quant'"),
        ("row_wise", storage(hbm=2**50), "hbm`, table table_"),
        ("row_wise", storage(hbm=0), "Shard 0 of table .* has weights of .* bytes"),
        ("column_wise", in_rows, "Shard 0 of table .* must be "),
        ("column_wise", type_("row_wise"), "which is row_wise, must "),
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
    assert "data_parallel" in {
        each.sharding_types[0] for each in plan_constraints(golden).values() if each.sharding_types
    }
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


def test_hosts_hold_the_tables_that_are_sharded_over_one(problem, plan, path):
    said = json.loads(path.read_text())
    assert said["local_world_size"] == 8

    def shift(said):
        shards = first(said, "table_row_wise")["shards"]
        for shard in shards:
            shard["rank"] = (shard["rank"] + 4) % 16

    said_again(path, shift)
    with pytest.raises(UsageError, match=r"Shard 0 of table .* must be on rank "):
        plan_constraints(path)


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


def test_more_pooling_factors_than_features_are_refused(golden_problem, golden):
    said_again(golden, lambda said: said["tables"][3]["pooling_factors"].append(1.0))
    with pytest.raises(UsageError, match=r"2 pooling factors for table table_3; .* 1 at most"):
        JsonPlanLoader(golden, golden_problem.module)


def test_an_embedding_collection_takes_its_own_sharding_types_alone(problem, plan, path):
    table = next(option.name for option in plan.options if option.sharding_type == "table_row_wise")
    with pytest.raises(UsageError, match=f"Table {table} is in an EmbeddingCollection and must be"):
        JsonPlanLoader(path, Model(configs(problem), [table]))


def test_a_shard_without_rows_is_where_torchrec_makes_one_and_not_on_a_cpu(tmp_path):
    model = EmbeddingBagCollection(
        tables=[
            EmbeddingBagConfig(name="t", num_embeddings=5, embedding_dim=8, feature_names=["t"])
        ],
        device=torch.device("meta"),
    )
    perf = dict.fromkeys(("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms"), 0.1)

    def write(rows):
        (tmp_path / "plan.json").write_text(
            json.dumps({
                "format": "shardbench-plan", "version": 1, "world_size": 4,
                "local_world_size": 4, "quality": {},
                "tables": [{
                    "name": "t", "rows": 5, "dim": 8, "dtype": "fp32", "pooling_factors": [1.0],
                    "sharding_type": "row_wise", "compute_kernel": "fused",
                    "cache_load_factor": None,
                    "shards": [
                        {
                            "size": [count, 8], "offset": [sum(rows[:rank]), 0], "rank": rank,
                            "storage_bytes": {"hbm": 160, "ddr": 0}, "perf_ms": perf,
                        }
                        for rank, count in enumerate(rows)
                    ],
                }],
            })
        )  # fmt: skip

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


def shards_of(*boxes):
    """Return shards as a document has them, of (rows, columns, row, column, rank)."""
    perf = dict.fromkeys(("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms"), 0.1)
    return [
        {
            "size": [rows, columns],
            "offset": [row, column],
            "rank": rank,
            "storage_bytes": {"hbm": 0, "ddr": 4 * rows * columns},
            "perf_ms": perf,
        }
        for rows, columns, row, column, rank in boxes
    ]


ON_ONE_HOST = (
    ("user", 601, 16, "row_wise", [(301, 16, 0, 0, 0), (300, 16, 301, 0, 1)]),
    ("item", 90, 32, "column_wise", [(90, 8, 0, 8 * at, at in (0, 3)) for at in range(4)]),
    ("shop", 7, 8, "table_row_wise", [(4, 8, 0, 0, 0), (3, 8, 4, 0, 1)]),
    ("city", 50, 16, "table_column_wise", [(50, 8, 0, 0, 1), (50, 8, 0, 8, 1)]),
)
ON_TWO_HOSTS = (
    ("user", 601, 16, "grid_shard", [(601, 8, 0, 0, 1), (601, 8, 0, 8, 0)]),
    ("item", 90, 32, "data_parallel", [(90, 32, 0, 0, 0), (90, 32, 0, 0, 1)]),
    ("shop", 7, 8, "table_wise", [(7, 8, 0, 0, 1)]),
    ("city", 50, 16, "column_wise", [(50, 16, 0, 0, 0)]),
)


@pytest.mark.long
@pytest.mark.parametrize(("tables", "ranks_of_a_host"), [(ON_ONE_HOST, 2), (ON_TWO_HOSTS, 1)])
def test_what_the_loader_takes_trains_as_the_unsharded_model(tmp_path, tables, ranks_of_a_host):
    said = {
        "format": "shardbench-plan",
        "version": 1,
        "quality": {},
        "world_size": 2,
        "local_world_size": ranks_of_a_host,
        "tables": [
            {
                "name": name,
                "rows": rows,
                "dim": dim,
                "dtype": "fp32",
                "pooling_factors": [1.0],
                "sharding_type": sharding_type,
                "compute_kernel": "dense" if sharding_type == "data_parallel" else "fused",
                "cache_load_factor": None,
                "shards": shards_of(*[(*box[:4], int(box[4])) for box in boxes]),
            }
            for name, rows, dim, sharding_type, boxes in tables
        ],
    }
    (tmp_path / "plan.json").write_text(json.dumps(said))
    trained = subprocess.run(
        [sys.executable, Path(__file__).parent / "train_plan_files.py", tmp_path / "plan.json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert trained.returncode == 0, trained.stderr[-2000:]
    assert trained.stdout.count("outputs equal: yes") == 2


def places(value, here=()):
    """Return the keys that lead to every value of a document."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, held in pairs:
        yield (*here, key)
        if isinstance(held, dict | list):
            yield from places(held, (*here, key))


def value_at(document, place):
    for key in place:
        document = document[key]
    return document


SAID = json.loads(GOLDEN.read_text())
PLACES = list(places(SAID))
BYTES = GOLDEN.read_bytes()


def read_or_refused(golden_problem, usable, path):
    """Load a file, which must be refused in a sentence or be a plan that is what it says."""
    try:
        loader = JsonPlanLoader(path, golden_problem.module, topology=usable)
    except UsageError as error:
        said = str(error)
        assert "plan.json" in said
        assert "__init__" not in said
        assert said.isprintable()
        return
    options = list(loader.load().values())
    validate(golden_problem, Plan(tuple(options)))
    assert decisions(options) == as_said(json.loads(path.read_bytes()))
    for table in json.loads(path.read_bytes())["tables"]:
        within = plan_constraints(path)[table["name"]]
        cut = calculate_shard_sizes_and_offsets(
            torch.empty(table["rows"], table["dim"], device="meta"),
            4,
            4,
            table["sharding_type"],
            within.min_partition,
        )
        assert [shard["size"] for shard in table["shards"]] == cut[0]
        assert [shard["offset"] for shard in table["shards"]] == cut[1]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzzed") / "plan.json"


@settings(max_examples=400, deadline=None)
@given(
    position=st.integers(0, len(BYTES) - 1),
    removed=st.integers(0, 2),
    put=st.binary(max_size=2) | st.sampled_from([b"0", b"1", b"9", b"-", b".", b"e", b'"', b","]),
)
@example(position=BYTES.index(b"0.0004"), removed=0, put=b"\x80")
@example(position=11949, removed=0, put=b"e")  # a number out of range
def test_a_file_with_a_changed_byte_is_a_plan_or_refused(
    golden_problem, usable, fuzzed, position, removed, put
):
    fuzzed.write_bytes(BYTES[:position] + put + BYTES[position + removed :])
    read_or_refused(golden_problem, usable, fuzzed)


@settings(max_examples=400, deadline=None)
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
def test_a_file_with_changed_fields_is_a_plan_or_refused(golden_problem, usable, fuzzed, changes):
    said = copy.deepcopy(SAID)
    for (*outer, last), value in changes:
        with suppress(LookupError, TypeError):
            value_at(said, outer)[last] = copy.deepcopy(value)
    fuzzed.write_text(json.dumps(said))
    read_or_refused(golden_problem, usable, fuzzed)
