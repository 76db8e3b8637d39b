"""What a cache, a capture and `plan` write is read by everything that reads plans."""

import json
import logging
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest import mock

import pytest
from compared import decisions
from hypothesis import given, settings, strategies as st
from random_models import Model, collection, random_model
from torch import nn
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import (
    CustomTopologyData,
    ParameterConstraints,
    PlannerError,
    Topology,
)
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import CacheParams

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
SHARDERS = get_default_sharders()


@pytest.fixture(autouse=True, scope="module")
def _little_work():
    with mock.patch("planners.embedding.best_plan.search.WORK_PER_SECOND", 2e4):
        yield


def case_of(constraints, pod=1, hbm=(4,)):
    """Return three large tables on eight ranks in hosts of two; ranks have MiB of `hbm` in turn."""
    names = [f"t{number}" for number in range(3)]
    memory = {"hbm_cap": [mib * MIB for mib in hbm] * (8 // len(hbm)), "ddr_cap": [64 * MIB] * 8}
    topology = Topology(
        world_size=8,
        local_world_size=2,
        pod_size=pod,
        compute_device="cuda",
        custom_topology_data=CustomTopologyData(memory, 8),
        created_by_factory=True,
    )
    model = nn.Module()
    model.bags = collection(dict.fromkeys(names, (4097, 128)))
    return Model(model, topology, dict.fromkeys(names, ParameterConstraints(**constraints)))


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


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["same-plan", "best-plan"]))
def test_what_is_written_is_read(seed, mode):
    """Each reader takes each plan file, or a warning said that no job can load it."""
    check(random_model(Random(seed), 6, unusual=False), mode)


@pytest.mark.parametrize(
    ("constraints", "machines", "can_be_loaded"),
    [
        ({"sharding_types": ["table_column_wise"], "min_partition": 16}, (2,), True),
        ({"sharding_types": ["table_row_wise"]}, (2, (32,)), True),
        ({"cache_params": CacheParams(load_factor=1)}, (), True),
        ({"sharding_types": ["row_wise"]}, (1, (64, 32)), False),
    ],
    ids=["columns in a pod", "rows in a pod", "all cached", "uneven"],
)
def test_pods_caches_and_uneven_rows_are_written_as_they_are_read(
    constraints, machines, can_be_loaded
):
    """Pods are hosts, unused load factors are allowed, and uneven rows cause a warning."""
    assert check(case_of(constraints, *machines)) == [can_be_loaded] * 2
