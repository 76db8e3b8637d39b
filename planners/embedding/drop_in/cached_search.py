"""A compiled search that first looks for its plan among plans that were found before."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import nn
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import ShardingOption, Topology
from torchrec.distributed.types import ModuleSharder
from typing_extensions import override

from planners.embedding.drop_in.compiled_search import CompiledSearch
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Devices, SearchSpace

Sharders = list[ModuleSharder[nn.Module]]
_NONE = np.empty(0, np.int64)


class KnownPlan(NamedTuple):
    """A plan that was found before: options with ranks, and the figures of its search."""

    options: list[ShardingOption]
    rating: float
    bound: float
    proposals: int
    partitions: int


class KnownProblem(Protocol):
    """The place of one problem among the plans that were found before."""

    def load(self, left: Topology) -> KnownPlan | None:
        """Return the plan of exactly this problem, or None.

        `left` is the topology after the storage reservation. It is called before other methods.
        """

    def search_near(
        self, space: SearchSpace, devices: Devices, deadline: Deadline, seed: int
    ) -> tuple[str, Found] | None:
        """Return a plan found from that of a similar problem, and how; or None."""

    def store(self, plan: KnownPlan) -> None:
        """Store the plan of this problem."""


class KnownPlans(Protocol):
    """Plans that were found before; shardbench's is `PlanCache`."""

    def problem(self, planner: Any, module: nn.Module, sharders: Sharders) -> KnownProblem | None:
        """Return a problem's place, or None if its plan cannot be stored."""


class CachedSearch(CompiledSearch):
    """Loads the plan of exactly this problem, without enumerating the options, or searches.

    In mode `best-plan` the search may begin with the plan of a similar problem. `use` is how the
    plan was found: a `hit`, a `near hit`, from a `start`, or "" if nothing was of use.
    """

    def __init__(self, planner: EmbeddingShardingPlanner, problem: KnownProblem) -> None:
        super().__init__(planner)
        self._problem = problem
        self.use = ""

    def enumerating(self, enumerate_: Callable[..., Any]) -> Callable[..., list[ShardingOption]]:
        """Wrap an enumerator's `enumerate` to return only the options of a known plan, if any."""

        def enumerate_or_load(module: nn.Module, sharders: Sharders) -> list[ShardingOption]:
            known = self._problem.load(self._topology)
            if known:
                self.use, self._proposals = "hit", [known.options]
                self.tried, self.bound = known.proposals, known.bound
                counts = known.proposals, known.partitions
                self._outcome = Found(_NONE, _NONE, known.rating, *counts, known.bound)
                return known.options
            found: list[ShardingOption] = enumerate_(module=module, sharders=sharders)
            return found

        return enumerate_or_load

    @override
    def load(self, search_space: list[ShardingOption], enumerator: Any = None) -> None:
        """Search for a plan, unless it is known."""
        if self.use != "hit":
            super().load(search_space, enumerator)

    @override
    def search(self, space: SearchSpace, devices: Devices) -> Found | NotFound:
        """Search from the plan of a similar problem in mode `best-plan`, else as without plans."""
        if self._best:
            seed = self._planner._seed
            near = self._problem.search_near(space, devices, self._deadline, seed)
            if near:
                self.use, found = near
                return found
        return super().search(space, devices)

    def store(self, plan: list[ShardingOption]) -> None:
        """Store the plan that torchrec took, unless it was known."""
        if self.use != "hit":
            planner = self._planner
            rating = planner._perf_model.rate(plan)
            counts = planner._num_proposals, planner._num_plans
            self._problem.store(KnownPlan(plan, rating, self.bound, *counts))


def figures_of(plan: KnownPlan) -> Mapping[str, float]:
    """Return the figures of a plan by name, as in a plan document."""
    return {
        "max_rank_ms": plan.rating,
        "bound_ms": plan.bound,
        "proposals": plan.proposals,
        "plans": plan.partitions,
    }
