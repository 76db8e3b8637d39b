"""Fixtures with plan files and their problems."""

import json

import pytest
from torchrec.distributed.planner.types import Topology

from harness.contract import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding import FAMILY
from planners.embedding.decision import Plan
from planners.embedding.planning import document
from planners.embedding.problem import EmbeddingProblem, build


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


@pytest.fixture(scope="module")
def golden_problem() -> EmbeddingProblem:
    return build(
        WorkloadSpec.parse("synthetic[tables=8,seed=6,memory=tight]"),
        find_topology("dgx_a100_80gb", 4),
    )


@pytest.fixture(scope="module")
def usable(golden_problem) -> Topology:
    """The topology with the memory that the reservation leaves for tables."""
    return golden_problem.storage_reservation().reserve(
        topology=golden_problem.topology,
        batch_size=golden_problem.batch_size,
        module=golden_problem.module,
        sharders=golden_problem.sharders,
        constraints=golden_problem.constraints,
    )
