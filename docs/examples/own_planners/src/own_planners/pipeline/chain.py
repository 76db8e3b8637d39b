"""The problem, a chain of layers to cut, and the decision, where it is cut."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from harness.contract import InfeasibleDecision, Topology, UsageError, WorkloadSpec
from own_planners.pipeline.workloads import layer_costs

TERA = 10**12


@dataclass(frozen=True, slots=True)
class Chain:
    """Layers in a row, to be cut into `stages`.

    `until` has at i what the first i layers cost, in FLOP of one sequence forward: whole numbers,
    so that sums are exact in any order.
    """

    until: tuple[int, ...]
    stages: int

    @property
    def layers(self) -> int:
        """How many layers the chain has."""
        return len(self.until) - 1

    @property
    def heaviest(self) -> int:
        """What the heaviest layer costs."""
        return max(self.cost(layer, layer + 1) for layer in range(self.layers))

    def cost(self, first: int, end: int) -> int:
        """Return what the layers from `first` to before `end` cost together."""
        return self.until[end] - self.until[first]


@dataclass(frozen=True, slots=True)
class Cut:
    """The decision: where each stage ends, the layer behind its last one."""

    ends: tuple[int, ...]

    @property
    def stages(self) -> tuple[tuple[int, int], ...]:
        """The first layer of each stage, and the one behind its last."""
        return tuple(zip((0, *self.ends), self.ends, strict=False))


def build(workload: WorkloadSpec, topology: Topology) -> Chain:
    """Make the problem: a stage for each GPU.

    Raises:
        UsageError: there are fewer layers than GPUs.
    """
    costs = layer_costs(workload)
    if len(costs) < topology.gpus:
        raise UsageError(
            f"Workload '{workload}' has {len(costs)} layers; they fill {len(costs)} GPUs at most, "
            f"not {topology.gpus}."
        )
    return Chain((0, *accumulate(costs)), topology.gpus)


def facts(chain: Chain) -> Mapping[str, float | str]:
    """Describe the problem; the first fact is its size."""
    return {
        "layers": chain.layers,
        "stages": chain.stages,
        "TFLOP": round(chain.until[-1] / TERA, 3),
    }


def fingerprint(cut: Cut) -> str:
    """Hash the decision; equal exactly where cuts are equal."""
    return hashlib.sha256(repr(cut.ends).encode()).hexdigest()[:16]


def validate(chain: Chain, cut: Cut) -> None:
    """Raise InfeasibleDecision unless each stage has a layer, and each layer a stage."""
    if len(cut.ends) != chain.stages or cut.ends[-1] != chain.layers:
        raise InfeasibleDecision(
            f"The cut must make {chain.stages} stages of {chain.layers} layers."
        )
    for stage, (first, end) in enumerate(cut.stages):
        if first >= end:
            raise InfeasibleDecision(f"Stage {stage} has no layer.")


def quality(chain: Chain, cut: Cut) -> Mapping[str, float]:
    """Rate a cut by its slowest stage, beside what no cut can better."""
    slowest = max(chain.cost(first, end) for first, end in cut.stages)
    bound = max(chain.heaviest, chain.until[-1] / chain.stages)
    return {"slowest_stage": slowest / TERA, "bound": bound / TERA}
