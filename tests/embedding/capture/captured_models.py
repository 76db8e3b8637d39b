"""Draws training scripts, captures their planning problems, and plans these problems again."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from compared import choice
from random_models import Model, collection, random_model
from torch import nn
from torchrec.distributed.planner import partitioners, proposers, storage_reservations as reserving
from torchrec.distributed.planner.perf_models import NoopStorageModel
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import PlannerError, Topology
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from harness.model.errors import InfeasibleDecision
from harness.model.ids import WorkloadSpec
from harness.planning.capture import capture
from harness.topologies.lookup import placed_on
from planners.embedding import FAMILY
from planners.embedding.decision import Plan, fingerprint
from planners.embedding.problem import EmbeddingProblem

# Factories, by argument of a planner, of the values that random scripts have.
COMPONENTS: dict[str, tuple[Callable[[], Any], ...]] = {
    "proposer": (
        lambda: None,
        proposers.GreedyProposer,
        lambda: proposers.GreedyProposer(use_depth=False, threshold=3),
        lambda: [proposers.DynamicProgrammingProposer(20), proposers.UniformProposer()],
        proposers.EmbeddingOffloadScaleupProposer,
    ),
    "partitioner": (
        lambda: None,
        lambda: partitioners.GreedyPerfPartitioner(partitioners.SortBy.PERF, True),
        lambda: partitioners.MemoryBalancedPartitioner(max_search_count=4, tolerance=0.1),
    ),
    "storage_reservation": (
        lambda: reserving.FixedPercentageStorageReservation(0.1),
        lambda: reserving.FixedAbsoluteStorageReservation(1000),
        lambda: reserving.HeuristicalStorageReservation(0.05),
        lambda: reserving.InferenceStorageReservation(0.0),
    ),
    "batch_size": (lambda: None, lambda: 16),
}


@dataclass
class Script(Model):
    """The model of a training script, and factories of its planner's arguments."""

    arguments: dict[str, Callable[[], Any]] = field(default_factory=dict)

    def planner(self, kind: type[EmbeddingShardingPlanner] = EmbeddingShardingPlanner) -> Any:
        """Return a new planner with the script's arguments."""
        return kind(**self.components() | {name: make() for name, make in self.arguments.items()})


def random_script(random: Random, most_tables: int = 6) -> Script:
    """Return a random job with random components of its planner."""
    job = random_model(random, most_tables, unusual=False)
    arguments = {name: random.choice(makers) for name, makers in COMPONENTS.items()}
    if random.random() < 0.2:
        arguments["performance_model"] = lambda: NoopStorageModel(job.topology)
    return Script(**vars(job), arguments=arguments)


def bags(prefix: str = "table", tables: int = 8, rows: int = 50_000) -> EmbeddingBagCollection:
    """Return a collection of tables; every third table has the same size."""
    return collection({f"{prefix}_{n}": (rows * (1 + n % 3), 64) for n in range(tables)})


def script(module: nn.Module | None = None, **arguments: Callable[[], Any]) -> Script:
    """Return a script for two hosts of two ranks, which plans a collection by default."""
    topology = Topology(4, "cuda", hbm_cap=2**30, local_world_size=2, created_by_factory=True)
    return Script(module or bags(), topology, arguments=arguments)


class Decided(NamedTuple):
    """The result of a planner: the plan of each table in order, or the error."""

    fingerprint: str
    placed: list[Any]
    error: str


def decided(plan: Callable[[], Plan]) -> Decided:
    """Return what a planner decides; of a planner's error, the first line."""
    try:
        made = plan()
    except (PlannerError, InfeasibleDecision) as error:
        reason = re.sub(r" \(\d+ of .*", "", str(error).strip().partition("\n")[0])
        return Decided("", [], reason.strip(" ."))
    except Exception as error:  # torchrec's planner has more errors than its own
        return Decided("", [], type(error).__name__)
    return Decided(fingerprint(made), [*map(choice, made.options)], "")


def plan_live(script: Script, planner: Any = None) -> Decided:
    """Plan as the training script does."""
    planner = planner or script.planner()

    def plan() -> Plan:
        planner.plan(script.module, script.sharders)
        return Plan(tuple(planner._best_plan))

    return decided(plan)


def plan_again(problem: EmbeddingProblem, variant: str = "as-captured") -> Decided:
    """Plan a captured problem with a variant, whose plan must be valid."""
    run = FAMILY.find(variant).prepared(problem).run

    def plan() -> Plan:
        plan = run()
        FAMILY.work.validate(problem, plan)
        return plan

    return decided(plan)


def captured(script: Script, path: Path, planner: Any = None, **options: Any) -> Decided:
    """Capture a script's planning, and return its result."""
    with capture("embedding", path, **options):
        return plan_live(script, planner)


def built(path: Path, topology: str | None = None, gpus: int | None = None) -> EmbeddingProblem:
    """Build the problem of a captured file."""
    workload = WorkloadSpec(str(path))
    machines = placed_on(FAMILY, workload, topology, gpus)
    problem: EmbeddingProblem = FAMILY.work.build(workload, machines)
    return problem
