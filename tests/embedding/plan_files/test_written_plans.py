"""What a cache, a capture and `plan` write is read by everything that reads plans."""

import json
import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pytest
from golden_plan import decisions
from hypothesis import given, settings, strategies as st
from random_models import Model, collection, sequences
from torch import nn
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import (
    CustomTopologyData,
    ParameterConstraints,
    PlannerError,
    Topology,
)
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import BoundsCheckMode, CacheParams
from torchrec.modules.embedding_configs import DataType

from harness.contract import UsageError, WorkloadSpec
from harness.planning.capture import capture
from harness.topologies.lookup import placed_on
from planners.embedding import FAMILY
from planners.embedding.drop_in.planner import Planner
from planners.embedding.plan_cache.cache import PlanCache
from planners.embedding.plan_files.loader import JsonPlanLoader, plan_constraints
from planners.embedding.plan_files.table import PlanTable
from planners.embedding.planning import PLANNING, document

MIB = 2**20
TYPES = ("table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise")
SHARDERS = get_default_sharders()


@pytest.fixture(autouse=True, scope="module")
def _little_work():
    with mock.patch("planners.embedding.best_plan.search.WORK_PER_SECOND", 2e4):
        yield


def case_of(
    shapes, constraints, ranks=4, host=2, pod=1, hbm=(4,), device="cuda", with_sequences=False
):
    """Return a model on devices in hosts and pods; the ranks have the MiB of `hbm` in turn."""
    model = nn.Module()
    model.inner = nn.Module()
    model.inner.bags = collection({f"t{number}": shape for number, shape in enumerate(shapes)})
    if with_sequences:
        model.sequences = sequences({"sequence": (500, 32)})
    memory = {
        "hbm_cap": [mib * MIB for mib in (hbm * ranks)[:ranks]],
        "ddr_cap": [64 * MIB] * ranks,
    }
    topology = Topology(
        world_size=ranks,
        local_world_size=host,
        pod_size=pod,
        compute_device=device,
        custom_topology_data=CustomTopologyData(memory, ranks),
        created_by_factory=True,
    )
    return Model(model, topology, constraints)


def written(folder, case, mode):
    """Yield a cache's file and a file of `plan` for the captured problem; none if no plan fits."""
    problem = folder / "problem.json"
    plans = []
    for use in ("", "hit"):
        cache = PlanCache(folder / "cache")
        planner = Planner(**case.components(), mode=mode, cache=cache)
        try:
            with capture("embedding", problem):
                planner.plan(case.module, SHARDERS)
        except (PlannerError, RuntimeError):  # nothing fits, or torchrec has no option
            return
        assert planner.from_cache == use
        plans.append(decisions(planner._best_plan))
    assert plans[0] == plans[1]
    yield from (folder / "cache").glob("*.json")

    workload = WorkloadSpec(str(problem))
    built = FAMILY.work.build(workload, placed_on(FAMILY, workload, None, None))
    plan = FAMILY.find(PLANNING.variant).prepared(built).run()
    file = folder / "plan.json"
    file.write_text(json.dumps(document(built, plan)))
    assert PLANNING.moving.within(built, file, 0.0, ()).moving is not None
    yield file


def load(file, case):
    """Load a plan in a job, with its own constraints and without; each must be the file's plan."""
    loader = JsonPlanLoader(file, case.module, topology=case.topology)
    within = plan_constraints(file, base=case.constraints)
    for kind, used in ((Planner, within), (EmbeddingShardingPlanner, case.constraints)):
        job = kind(**{**case.components(), "constraints": used}, plan_loader=loader)
        job.plan(case.module, SHARDERS)
        read = {option.name: option for option in loader.load().values()}
        assert decisions(job._best_plan) == decisions(read.values())
        assert job._num_proposals == 0
        assert len(job._enumerator.last_stored_search_space) == len(read) or used is not within
        for option in job._best_plan:
            assert option.shards == read[option.name].shards
            own = case.constraints.get(option.name, ParameterConstraints())
            for name in ("output_dtype", "bounds_check_mode", "stochastic_rounding"):
                assert getattr(option, name) == getattr(own, name)


def check(case, mode="same-plan"):
    """Check that all readers take what is written; return whether jobs can load each file."""
    loadable = []
    with (
        TemporaryDirectory() as folder,
        mock.patch.object(logging.getLogger("shardbench"), "warning") as warning,
    ):
        for file in written(Path(folder), case, mode):
            assert PlanTable.of(file).world_size == case.topology.world_size
            told = [call.args[0] for call in warning.call_args_list]
            loadable.append(not any("No training job can load this plan" in text for text in told))
            warning.reset_mock()
            if loadable[-1]:
                load(file, case)
                warning.assert_not_called()
            else:
                with pytest.raises(UsageError, match="cannot be trained"):
                    JsonPlanLoader(file, case.module, topology=case.topology)
    return loadable


CONSTRAINTS = st.builds(
    ParameterConstraints,
    sharding_types=st.none() | st.lists(st.sampled_from(TYPES), min_size=2, unique=True),
    compute_kernels=st.sampled_from(
        [None, ["fused", "fused_uvm_caching"], ["fused_uvm", "dense", "fused"]]
    ),
    min_partition=st.sampled_from([None, 16, 32]),
    pooling_factors=st.lists(st.sampled_from([1.0, 2.5, 30.0]), min_size=1, max_size=3),
    cache_params=st.none()
    | st.builds(CacheParams, load_factor=st.sampled_from([None, 0, 0.0, 0.3, 1, 1.0, 1.5])),
    output_dtype=st.sampled_from([None, DataType.FP16]),
    bounds_check_mode=st.sampled_from([None, BoundsCheckMode.WARNING]),
    stochastic_rounding=st.sampled_from([None, False]),
)
SHAPES = st.tuples(st.sampled_from([3, 100, 4097]), st.sampled_from([16, 64, 128]))


@settings(max_examples=15, deadline=None)
@given(
    st.builds(
        lambda shapes, constraints, host, hosts, pod, *rest: case_of(
            shapes, constraints, host * hosts, host, min(pod, hosts), *rest
        ),
        st.lists(SHAPES, min_size=1, max_size=5),
        st.dictionaries(st.sampled_from([f"t{n}" for n in range(5)]), CONSTRAINTS, max_size=5),
        *(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.integers(1, 2)),
        st.sampled_from([(1,), (4,), (6, 3)]),
        *(st.sampled_from(["cuda", "cuda", "cpu"]), st.booleans()),
    ),
    st.sampled_from(["same-plan", "best-plan"]),
)
def test_what_is_written_is_read(case, mode):
    """Each reader takes each plan file, or a warning said that no job can load it."""
    check(case, mode)


@pytest.mark.parametrize(
    ("constraints", "machines", "can_be_loaded"),
    [
        ({"sharding_types": ["table_column_wise"], "min_partition": 16}, (8, 2, 2), True),
        ({"sharding_types": ["table_row_wise"]}, (8, 2, 2, (32,)), True),
        ({"cache_params": CacheParams(load_factor=1)}, (), True),
        ({"sharding_types": ["row_wise"]}, (4, 2, 1, (64, 32)), False),
    ],
    ids=["columns in a pod", "rows in a pod", "all cached", "uneven"],
)
def test_pods_caches_and_uneven_rows_are_written_as_they_are_read(
    constraints, machines, can_be_loaded
):
    """Pods are hosts, unused load factors are allowed, and uneven rows cause a warning."""
    own = {f"t{number}": ParameterConstraints(**constraints) for number in range(3)}
    assert check(case_of([(4097, 128)] * 3, own, *machines)) == [can_be_loaded] * 2
