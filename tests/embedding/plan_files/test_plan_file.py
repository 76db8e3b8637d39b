"""A plan file is loaded into a training job, or refused in a sentence."""

import copy
import json
from dataclasses import replace
from functools import reduce
from operator import getitem

import built_problem
import pytest
import torch
from compared import decisions
from golden_plan import GOLDEN, SAID, document_of
from hostile import change, places, read_or_refused
from hypothesis import example, given, settings, strategies as st
from random_models import META, collection, sequences
from torch import nn
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets
from torchrec.distributed.types import BoundsCheckMode, CacheAlgorithm, CacheParams
from torchrec.modules.embedding_configs import DataType
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.modules.embedding_tower import EmbeddingTower
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection

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
def write(tmp_path):
    """Return a function that writes a plan file; by default of one small table with `fields`."""

    def write(said=None, **fields):
        small = ("t", 8, 4, "table_row_wise", [(8, 4, 0, 0, 0)])
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(said or document_of([small], 1, 1, **fields)))
        return path

    return write


def bags(*names, size=(8, 4)):
    return collection(dict.fromkeys(names or "t", size))


def test_a_file_of_version_1_stays_readable_and_is_written_again(problem):
    """The file of the first release is loaded, and its plan gives the same file."""
    loader = JsonPlanLoader(GOLDEN, problem.module, topology=problem.reserved())
    options = tuple(loader.load().values())
    validate(problem, Plan(options))
    assert decisions(options) == decisions(parse_plan(GOLDEN, GOLDEN.read_bytes()).tables)
    written = json.loads(json.dumps(document(problem, Plan(options[::-1]))))
    assert written["quality"].keys() == SAID["quality"].keys()
    # How near a bound comes to the plan is not the file's matter.
    assert {**written, "quality": None} == {**SAID, "quality": None}


def test_constraints_of_the_job_are_kept_but_those_that_choose_an_option(write, caplog):
    """All values of `base` stay, also of other tables; the plan's option and cache size win."""
    own = ParameterConstraints(
        pooling_factors=[7.0],
        output_dtype=DataType.FP16,
        bounds_check_mode=BoundsCheckMode.WARNING,
        stochastic_rounding=False,
        min_partition=32,
        cache_params=CacheParams(algorithm=CacheAlgorithm.LFU, load_factor=0.5),
    )
    base = {"t": own, "elsewhere": ParameterConstraints(min_partition=8)}
    within = plan_constraints(write(cache_load_factor=0.25), base=base)
    assert within["t"] == replace(
        own,
        sharding_types=["table_row_wise"],
        compute_kernels=["fused"],
        min_partition=4,
        cache_params=replace(own.cache_params, load_factor=0.25),
    )
    assert within["elsewhere"] == base["elsewhere"]
    assert own.cache_params.load_factor == 0.5
    assert caplog.records == []


@pytest.mark.parametrize(
    ("own", "lost"),
    [
        (None, "output_dtype"),
        (ParameterConstraints(enforce_hbm=True), "output_dtype"),
        (ParameterConstraints(output_dtype=DataType.FP16), ""),
        (
            ParameterConstraints(["row_wise"], ["dense"], output_dtype=DataType.FP16),
            "compute_kernels, sharding_types",
        ),
    ],
)
def test_constraints_that_a_loaded_plan_loses_are_named(write, caplog, own, lost):
    """A warning names what the plan had and the constraints lack, and what the plan overrides."""
    plan_constraints(write(constrained=["output_dtype"]), base=own and {"t": own})
    assert len(caplog.records) == bool(lost)
    assert f"({lost})" in caplog.text or not lost


UNSERVED = {
    "Module 'inner' is a torchrec.*FeatureProcessedEmbeddingBagCollection": lambda: (
        FeatureProcessedEmbeddingBagCollection(
            EmbeddingBagCollection(bags().embedding_bag_configs(), True, META),
            PositionWeightedModuleCollection({"t_f": 2}, device=META),
        )
    ),
    "Module 'inner' is a torchrec.*EmbeddingTower": lambda: EmbeddingTower(bags(), nn.Linear(1, 1)),
    "plan.json is for a table t of 8 x 4 fp32, not of 7 x 4": lambda: bags(size=(7, 4)),
    "not of 8 x 4 fp16": lambda: bags().half(),  # as it is, not as it was configured
    "does not place table u, which the model has": lambda: bags("t", "u"),
    "places table t, which the model does not have": lambda: nn.Linear(1, 1),
    "has table t twice": lambda: nn.Sequential(bags(), bags()),
    "Table t is in an EmbeddingCollection and must be one of": lambda: sequences({"t": (8, 4)}),
}


@pytest.mark.parametrize("message", UNSERVED)
def test_a_model_that_the_loader_cannot_serve_is_refused_by_the_constructor(write, message):
    """A refusal names the module or the table that the plan is not for."""
    model = nn.Module()
    model.inner = UNSERVED[message]()
    with pytest.raises(UsageError, match=message):
        JsonPlanLoader(write(), model)


def test_another_number_of_ranks_than_the_plans_is_refused(write):
    """A job of another size gets no plan, whatever the model."""
    assert JsonPlanLoader(write(), bags(), world_size=1).load()
    with pytest.raises(UsageError, match="is for 1 ranks, not for 8"):
        JsonPlanLoader(write(), bags(), world_size=8)


def test_each_load_gives_new_shards(write):
    """What a job changes in a loaded plan is not in the next one."""
    loader = JsonPlanLoader(write(), bags())
    first, second = loader.load(), loader.load()
    [option] = first.values()
    assert first.keys() == second.keys()
    option.shards[0].rank = None
    assert second.popitem()[1].shards[0].rank == 0
    assert loader.plan_context_hash() is None
    assert loader.get_plan_id() == JsonPlanLoader(write(), bags()).get_plan_id()


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
    """The loader and the constraints refuse a file alike."""
    path = tmp_path / "plan.json"
    if text is not None:
        path.write_text(text)
    for read in (lambda: JsonPlanLoader(path, nn.Identity()), lambda: plan_constraints(path)):
        with pytest.raises(UsageError, match=f"plan.json.*{message}"):
            read()


def row_wise(*wanted):
    """Return changes of the first fused table of the golden plan that is cut by rows."""
    kinds = [(table["sharding_type"], table["compute_kernel"]) for table in SAID["tables"]]
    number = kinds.index(("row_wise", "fused"))
    return [(("tables", number, *way), what, value) for way, what, value in wanted]


def put(*way, to):
    return row_wise((way, "put", to))


@pytest.mark.parametrize(
    ("wanted", "differing", "message"),
    [
        (put("shards", 1, "size", to=[0, 0]), {}, "Shard 1 of table .* not 0 x 0 at row"),
        (row_wise((("shards", 0), "twice", None)), {}, "must have 4 shards, not 5"),
        (put("shards", 1, "rank", to=0), {}, "Shard 1 of table .* must be on rank 1, not 0"),
        (put("sharding_type", to="column_wise"), {}, "which is column_wise, must be "),
        (put("sharding_type", to="data_parallel"), {}, "The kernel .* be one of dense"),
        (put("shards", 0, "storage_bytes", "hbm", to=2**63), {}, "hbm`, table table_"),
        (put("shards", 0, "storage_bytes", "hbm", to=0), {}, "has weights of .* bytes"),
        (put("other", to=1), {}, "unknown field `other`"),
        (
            put("compute_kernel", to=CACHED) + put("cache_load_factor", to=0),
            {},
            "table_.* must be between 0 and 1",
        ),
        # The topology that it is loaded for.
        ([], {"world_size": 8}, "is for 4 ranks, not for 8"),
        ([], {"local_world_size": 2}, "which is table_row_wise, must be "),
        ([], {"compute_device": "cpu"}, "The kernel of table .* on cpu, not 'fused_uvm_caching'"),
        ([], {"hbm_cap": 2**30}, f"Rank . needs .* bytes of HBM and has {2**30}"),
        ([], {"ddr_cap": 2**30}, f"Rank . needs .* bytes of DDR and has {2**30}"),
    ],
)
def test_a_plan_that_would_not_train_is_refused_with_its_reason(
    problem, write, wanted, differing, message
):
    """One sentence names the table and the shard, or the rank without enough memory."""
    said = copy.deepcopy(SAID)
    change(said, wanted)
    usual = {"world_size": 4, "local_world_size": 4, "compute_device": "cuda"}
    topology = Topology(**{**usual, "hbm_cap": 2**40, "ddr_cap": 2**42, **differing})
    with pytest.raises(UsageError, match=f"plan.json .*({message})|{message}") as refused:
        JsonPlanLoader(write(said), problem.module, topology=topology)
    assert str(refused.value).count(". ") == 0


@pytest.mark.parametrize(
    ("rows", "device", "message"),
    [
        ([2, 2, 1, 0], "cuda", ""),
        ([2, 2, 1, 0], "cpu", "Shard 3 of table t is empty"),
        ([2, 2, 0, 1], "cuda", "Shard 2 of table t, .* must be 1 x 8 at row 4"),
    ],
)
def test_a_shard_without_rows_is_where_torchrec_makes_one(write, rows, device, message):
    """The last shards of a table with few rows are empty, which no kernel trains on a CPU."""
    boxes = [(count, 8, sum(rows[:rank]), 0, rank) for rank, count in enumerate(rows)]
    path = write(document_of([("t", 5, 8, "row_wise", boxes)], 4, 4))
    topology = Topology(world_size=4, compute_device=device, hbm_cap=2**20, ddr_cap=2**20)

    def load():
        return JsonPlanLoader(path, bags(size=(5, 8)), topology=topology).load()

    if message:
        with pytest.raises(UsageError, match=message):
            load()
    else:
        assert len(load()) == 1


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
def test_the_present_plan_must_tile_its_tables_but_not_train(write, kind, shards, fault):
    """A plan to move from may have uneven rows; each weight must be in one shard."""
    path = write(document_of([("t", 8, 8, kind, shards)], 2, 2))
    if fault:
        with pytest.raises(UsageError, match=f"plan.json is a damaged plan: .* {fault}"):
            PlanTable.of(path)
    else:
        assert PlanTable.of(path).tables["t"].ranks == (0, 1)


PLACES = st.sampled_from(places(SAID))
VALUES = st.integers(-2, 6) | st.sampled_from(
    [True, None, 0.5, 1e30, 2**50, 2**63, 10**400, "", "table_1", [], {}]
)
OTHER_VALUES = PLACES.map(lambda place: copy.deepcopy(reduce(getitem, place, SAID)))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(PLACES, st.just("put"), VALUES | OTHER_VALUES), min_size=1, max_size=3))
@example(wanted=[(("local_world_size",), "put", 1)])
def test_a_file_with_changed_fields_is_a_plan_or_refused(problem, tmp_path_factory, wanted):
    """What the loader takes is valid, is the file's plan, and is cut as its constraints say."""
    said = copy.deepcopy(SAID)
    change(said, wanted)
    path = tmp_path_factory.getbasetemp() / "plan.json"
    path.write_text(json.dumps(said))
    topology = problem.reserved()
    loader = read_or_refused(
        lambda: JsonPlanLoader(path, problem.module, topology=topology), path.name
    )
    if loader is None:
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
