"""Runs the compiled search in place of a planner's proposers and its partitioner."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import EmbeddingOffloadScaleupProposer
from torchrec.distributed.planner.types import (
    Enumerator,
    Partitioner,
    PlannerError,
    Proposer,
    ShardingOption,
    Topology,
)
from typing_extensions import override

from harness.contract import UsageError
from planners.embedding.drop_in.checks import (
    fault_of,
    obstacle_of_problem,
    obstacle_of_proposers,
)
from planners.embedding.drop_in.turns import (
    NothingFound,
    Options,
    PlanFound,
    TorchrecsTurn,
    WrongPlan,
    least_memory,
)
from planners.embedding.same_plan.proposals import rules_of
from planners.embedding.search import warm_up
from planners.embedding.search.options import copy_without_ranks
from planners.embedding.search.outcome import Deadline, Found, NotFound, placed
from planners.embedding.search.space import Devices, SearchSpace, devices_of, search_space

if TYPE_CHECKING:
    from planners.embedding.same_plan.search import SamePlan

_CACHED = EmbeddingComputeKernel.FUSED_UVM_CACHING.value
SMALL = 50_000
"""Options times tables times ranks up to which torchrec's search takes less time than loading the
compiled search into a process."""


class NotCompiled(Exception):
    """The compiled search does not support the problem; the message is a clause with the reason."""


class CompiledSearch(Proposer, Partitioner):
    """Stands in for a planner's proposers and its partitioner in one call of `plan`.

    `load` runs the search; what torchrec calls after that depends on whose turn it is. TorchRec's
    own search may have a turn first (TorchrecsTurn), in mode `same-plan` alone, since it finds the
    same plan: it searches a `SMALL` problem if the compiled search is not loaded, and a larger one
    until another process has compiled the search. Then the proposals lead torchrec to the outcome
    of the compiled search (PlanFound or NothingFound).

    `outcome` is that of the compiled search, as far as it ran. `planner` is a `Planner`; its type
    is not stated, since its module imports this one.
    """

    def __init__(self, planner: EmbeddingShardingPlanner) -> None:
        self._planner = planner
        self._proposers = planner._proposers
        self._partitioner = planner._partitioner
        self._best = planner._mode == "best-plan"
        self._topology: Topology
        self._deadline = Deadline()
        self._turn: TorchrecsTurn | PlanFound | NothingFound
        self._same_plan: SamePlan | None = None
        self.outcome: Found | NotFound = NotFound(None, None, 0)
        if self._best:
            warm_up.begin(warm_up.BEST_PLAN)

    @property
    def proposed(self) -> int:
        """The number of proposals so far, including repeated proposals."""
        return self._same_plan.proposals if self._same_plan else self.outcome.proposals

    @property
    def verdict(self) -> str:
        """Whether a plan exists, as a clause, if none was found; empty if that is unknown."""
        return "" if isinstance(self.outcome, Found) else self.outcome.verdict

    def keeping_topology(self, reserve: Callable[..., Topology]) -> Callable[..., Topology]:
        """Wrap a storage reservation's `reserve` to also store its result for the search."""

        def reserve_and_keep(*args: Any, **kwargs: Any) -> Topology:
            try:
                self._topology = reserve(*args, **kwargs)
            except PlannerError:  # the reservation needs more than all memory
                if self._best:
                    self.outcome = NotFound(None, None, 0, bound=math.inf)
                raise
            return self._topology

        return reserve_and_keep

    @override
    def load(self, search_space: Options, enumerator: Enumerator | None = None) -> None:
        """Search for a plan without changing the options; raises NotCompiled or WrongPlan."""
        planner = self._planner
        with _errors_distrusted():
            if self._best and planner._limit is not None:  # compiling does not use up the limit
                warm_up.ready(warm_up.BEST_PLAN)
            limit = planner._limit if self._best else planner._timeout_seconds or None
            self._deadline = Deadline(limit, planner._clock)
            space = None if self._is_for_torchrec(search_space) else self._supported(search_space)
            proposers = partial(self._copied_proposers, search_space)
            self._turn = TorchrecsTurn(proposers, space)
            self._advance()

    def _is_for_torchrec(self, options: Options) -> bool:
        """Whether torchrec's search takes less time than loading the compiled one."""
        tables = len({option.fqn for option in options})
        size = len(options) * tables * self._topology.world_size
        return not self._best and size <= SMALL and not warm_up.are_loaded(self._kernels)

    def _supported(self, options: Options) -> SearchSpace:
        """Return the options as arrays; raise NotCompiled if the search does not support them."""
        try:
            space = self.flatten(options)
        except ValueError as error:
            raise NotCompiled(str(error)) from None
        obstacle = obstacle_of_problem(space, self._topology)
        if obstacle is None and not self._best:
            obstacle = obstacle_of_proposers(self._proposers, self._topology)
        if obstacle is not None:
            raise NotCompiled(obstacle)
        return space

    def _copied_proposers(self, options: Options) -> list[Proposer]:
        """Return copies of the planner's proposers, which keep state, with copied options."""
        proposers: list[Proposer] = copy.deepcopy(self._proposers)
        copies = [copy_without_ranks(option, ShardingOption) for option in options]
        for proposer in proposers:
            proposer.load(search_space=copies, enumerator=self._planner._enumerator)
        return proposers

    @property
    def _kernels(self) -> Sequence[str]:
        return warm_up.kernels_of(self._proposers)

    def _advance(self) -> None:
        """End torchrec's turn with the compiled search, if that is compiled by now."""
        if not isinstance(self._turn, TorchrecsTurn) or self._turn.space is None:
            return
        space, planner = self._turn.space, self._planner
        if not self._best:
            try:
                if not warm_up.advance(self._kernels):
                    return
            except warm_up.CannotCompile as error:
                self._turn.space = None
                planner._say(str(error))
                return
            warm_up.load(self._kernels)
        self.outcome = outcome = self.search(space, devices_of(self._topology))
        if isinstance(outcome, NotFound):
            self._turn = NothingFound.of(space, outcome)
            return
        plan = placed(space, outcome)
        tables = {option.fqn for option in space.options}
        partitioner = self._partitioner if self._same_plan else None
        fault = planner._check and fault_of(
            *(plan, outcome.rating, tables, self._topology, planner._perf_model),
            *(partitioner, planner._own_estimates()),
        )
        if fault:
            raise WrongPlan(fault)
        self._turn = PlanFound(plan, outcome.rating)

    def flatten(self, options: Options) -> SearchSpace:
        """Return the search space as arrays."""
        return search_space(options)

    def search(self, space: SearchSpace, devices: Devices) -> Found | NotFound:
        """Search in the planner's mode; if `best-plan` finds no plan, search as `same-plan`."""
        from planners.embedding.same_plan.search import SamePlan

        bound, tried = 0.0, ""
        if self._best:
            from planners.embedding.best_plan.search import MOST_FOR_ALL_PROPOSALS

            best = self._search_best(space, devices)
            if isinstance(best, Found):
                return best
            obstacle = obstacle_of_proposers(self._proposers, self._topology)
            large = space.tables * devices.ranks > MOST_FOR_ALL_PROPOSALS
            if math.isinf(best.bound) and (large or obstacle):  # proven without proposals
                return replace(best, smallest=least_memory(space))
            if obstacle is not None:
                raise NotCompiled(f"the search for the best plan finds none, and {obstacle}")
            bound, tried = best.bound, best.tried
        rules = rules_of(self._partitioner)
        assert rules is not None
        self._same_plan = SamePlan(self._proposers, rules, self._deadline)
        outcome = self._same_plan(space, devices)
        if isinstance(outcome, NotFound):
            return replace(outcome, bound=bound, tried=tried)
        return replace(outcome, bound=bound)

    def _search_best(self, space: SearchSpace, devices: Devices) -> Found | NotFound:
        """Search for the best plan, or for the best one within the budget of a previous plan."""
        planner, previous = self._planner, self._planner._previous
        if previous is None:
            from planners.embedding.best_plan.search import best_plan

            return best_plan(space, devices, self._deadline, planner._seed)
        from planners.embedding.best_plan.near.search import NearSearch

        previous.check_matches({option.fqn for option in space.options}, "The previous plan")
        if not NearSearch.can_search(space, devices):
            raise NotCompiled("moves are not counted for tables that depend on each other")
        near = NearSearch(space, devices, previous.moves, self._deadline, planner._seed)
        return near.search(planner._move_budget)

    @override
    def propose(self) -> Options | None:
        """Return the next proposal of the search whose turn it is, or None after the last one."""
        with _errors_distrusted():
            self._advance()
            proposal = self._turn.propose()
        if proposal is None and not isinstance(self._turn, TorchrecsTurn):
            outcome = self.outcome  # its counts replace those of the proposals made here
            self._planner._num_proposals = outcome.proposals
            self._planner._num_plans = outcome.partitions if isinstance(outcome, Found) else 0
        return proposal

    @override
    def partition(self, proposal: Options, storage_constraint: Topology) -> Options:
        """Return a proposal that is the plan found, or else call the planner's own partitioner."""
        turn = self._turn
        if isinstance(turn, PlanFound) and proposal is turn.plan:
            return proposal
        if isinstance(turn, NothingFound) and turn.summed:
            raise PlannerError("The proposal with the least memory cannot be placed.")
        plan: Options = self._partitioner.partition(
            proposal=proposal, storage_constraint=storage_constraint
        )
        return plan

    @override
    def feedback(
        self,
        partitionable: bool,
        plan: Options | None = None,
        perf_rating: float | None = None,
        storage_constraint: Topology | None = None,
    ) -> None:
        """Go to the next proposal; raises WrongPlan if torchrec rates this one differently."""
        if isinstance(self._turn, TorchrecsTurn):
            self._turn.feedback(partitionable, plan, perf_rating, storage_constraint)
        else:
            self._turn.feedback(perf_rating)


class LargerCaches(EmbeddingOffloadScaleupProposer):
    """TorchRec's proposer of larger caches, on copies of the options.

    It changes load factors, so its proposals are no choices among the options that are searched.
    """

    @override
    def load(self, search_space: Options, enumerator: Enumerator | None = None) -> None:
        """Load copies of the options, because the proposer changes them.

        If a cached table lacks cache parameters, which TorchRec asserts, nothing is proposed.
        """
        if all(o.cache_params for o in search_space if o.compute_kernel == _CACHED):
            copies = [copy_without_ranks(option, ShardingOption) for option in search_space]
            super().load(copies, enumerator)


@contextmanager
def _errors_distrusted() -> Iterator[None]:
    """Raise WrongPlan in place of any unexpected error."""
    try:
        yield
    except (NotCompiled, WrongPlan, UsageError):
        raise
    except Exception as error:
        reason = f"the compiled search failed with {type(error).__name__}: {error}"
        raise WrongPlan(reason.rstrip(".")) from error
