"""The embedding family's functions for problems and plans; importing them imports torchrec."""

from operator import methodcaller

from harness.contract import Topology, WorkloadSpec, is_captured_file
from planners.embedding import problem as problems
from planners.embedding.captured_problem import build_captured
from planners.embedding.decision import fingerprint, validate
from planners.embedding.observer import observe
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.quality import quality

__all__ = ["build", "facts", "fingerprint", "observe", "quality", "validate"]

facts = methodcaller("facts")
"""Return facts about a problem, its size first."""


def build(workload: WorkloadSpec, topology: Topology) -> EmbeddingProblem:
    """Build the problem of a workload, which may be a captured file."""
    if is_captured_file(workload.name):
        return build_captured(workload.name, topology)
    return problems.build(workload, topology)
