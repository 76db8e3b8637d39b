"""Builds a problem of the family from the names of its workload and topology."""

from harness.contract import WorkloadSpec
from harness.topologies.lookup import find_topology
from planners.embedding.problem import EmbeddingProblem, build


def problem(workload: str, topology: str = "dgx_a100_80gb", gpus: int = 16) -> EmbeddingProblem:
    return build(WorkloadSpec.parse(workload), find_topology(topology, gpus))
