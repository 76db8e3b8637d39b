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
    Shard,
    ShardingOption,
    Topology,
)
from typing_extensions import override

from harness.contract import UsageError
from planners.embedding.drop_in import obstacles
from planners.embedding.drop_in.failed_proposals import failed_proposals, least_memory
from planners.embedding.drop_in.plan_check import fault_of, without_ranks
from planners.embedding.same_plan.partition import rules_of
from planners.embedding.search import warm_up
from planners.embedding.search.outcome import Deadline, Found, NotFound
from planners.embedding.search.space import Devices, SearchSpace, devices_of, search_space
from planners.embedding.search.unmade_shards import SharedOption, with_shards

if TYPE_CHECKING:
    from planners.embedding.plan_files.previous import PreviousPlan
    from planners.embedding.same_plan.search import SamePlan

_CACHED = EmbeddingComputeKernel.FUSED_UVM_CACHING.value
SMALL = 50_000
"""Options times tables times ranks up to which torchrec's search takes less time than loading the
compiled search into a process."""


class NotCompiled(Exception):
    """The compiled search does not support the problem; the message is a clause with the reason."""


class WrongPlan(Exception):
    """The compiled search failed or found a wrong plan; the message is a clause with the reason."""


class CompiledSearch(Proposer, Partitioner):
    """Replaces a planner's proposers and its partitioner in one call of `plan`.

    `load` runs the search. `propose` then returns proposals that lead torchrec to the same result:
    the plan found, or, if there is none, the smallest proposal and the last one, which the
    planner's own partitioner rejects again.

    In mode `same-plan` the planner's own proposers may search instead, and find the same plan. They
    search a `SMALL` problem, unless the compiled search is already loaded, and a larger problem
    until another process has compiled the search. `tried` counts the proposals that were tried.
    `planner` is a `Planner`; its type is not stated, since its module imports this one.
    """

    def __init__(self, planner: EmbeddingShardingPlanner) -> None:
        self._planner = planner
        self._proposers = planner._proposers
        self._partitioner = planner._partitioner
        self._best = planner._mode == "best-plan"
        self._topology: Topology
        self._deadline = Deadline()
        self._same_plan: SamePlan | None = None
        self._torchrecs: list[Proposer] | None = None  # the planner's own proposers, if they search
        self._unsearched: SearchSpace | None = None
        self._outcome: Found | NotFound | None = None
        self._proposals: list[list[ShardingOption]] = []
        self.tried = 0
        self.bound = 0.0  # proven lower bound in milliseconds for all plans
        self._summed = False  # whether failed proposals have one shard per option
        self.verdict = ""  # the reason why no plan was found, as a clause
        if self._best:
            warm_up.begin(warm_up.BEST_PLAN)

    @property
    def proposed(self) -> int:
        """The number of proposals so far, including repeated proposals."""
        return self._same_plan.proposals if self._same_plan else self.tried

    def keeping_topology(self, reserve: Callable[..., Topology]) -> Callable[..., Topology]:
        """Wrap a storage reservation's `reserve` to also store its result for the search."""

        def reserve_and_keep(*args: Any, **kwargs: Any) -> Topology:
            try:
                self._topology = reserve(*args, **kwargs)
            except PlannerError:
                if self._best:
                    self.bound = math.inf
                    self.verdict = "the storage reservation needs more than all memory"
                raise
            return self._topology

        return reserve_and_keep

    @override
    def load(
        self, search_space: list[ShardingOption], enumerator: Enumerator | None = None
    ) -> None:
        """Search for a plan without changing the options; raises NotCompiled or WrongPlan."""
        planner = self._planner
        with _errors_distrusted():
            if self._best and planner._limit is not None:  # compiling does not use up the limit
                warm_up.ready(warm_up.BEST_PLAN)
            limit = planner._limit if self._best else planner._timeout_seconds or None
            self._deadline = Deadline(limit, planner._clock)
            if not self._best and not self._is_worth_loading(search_space):
                self._load_torchrecs(search_space)
                return
            try:
                self._unsearched = space = self.flatten(search_space)
            except ValueError as error:
                raise NotCompiled(str(error)) from None
            obstacle = obstacles.of_problem(space, self._topology)
            if obstacle is None and not self._best:
                obstacle = obstacles.of_proposers(self._proposers, self._topology)
            if obstacle is not None:
                raise NotCompiled(obstacle)
            if not self._is_searched():
                self._load_torchrecs(search_space)

    def _is_worth_loading(self, options: list[ShardingOption]) -> bool:
        tables = len({option.fqn for option in options})
        size = len(options) * tables * self._topology.world_size
        return size > SMALL or warm_up.are_loaded(self._kernels)

    @property
    def _kernels(self) -> Sequence[str]:
        return warm_up.kernels_of(self._proposers)

    def _load_torchrecs(self, options: list[ShardingOption]) -> None:
        """Load copies of the options into copies of the planner's proposers, which keep state."""
        self._torchrecs = copy.deepcopy(self._proposers)
        copies = [_copied(option, ShardingOption) for option in options]
        for proposer in self._torchrecs:
            proposer.load(search_space=copies, enumerator=self._planner._enumerator)

    def _is_searched(self) -> bool:
        """Run the compiled search if it is compiled by now; return whether it ran."""
        if self._unsearched is None:
            return False
        if not self._best:
            try:
                if not warm_up.advance(self._kernels):
                    return False
            except warm_up.CannotCompile as error:
                self._unsearched = None
                self._planner._say(str(error))
                return False
            warm_up.load(self._kernels)
        self._torchrecs = None
        self._search(self._unsearched)
        return True

    def _search(self, space: SearchSpace) -> None:
        self._outcome = outcome = self.search(space, devices_of(self._topology))
        self.tried, self.bound = outcome.proposals, outcome.bound
        if isinstance(outcome, Found):
            plan = placed(space, outcome)
            fault = self._planner._check and fault_of(
                plan,
                outcome.rating,
                {option.fqn for option in space.options},
                self._topology,
                self._planner._perf_model,
                self._partitioner if self._same_plan else None,
                self._planner._own_estimates(),
            )
            if fault:
                raise WrongPlan(fault)
            self._proposals = [plan]
        else:
            self.verdict = outcome.verdict
            copied = partial(_copied, kind=ShardingOption)
            self._proposals, self._summed = failed_proposals(space, outcome, copied)

    def flatten(self, options: list[ShardingOption]) -> SearchSpace:
        """Return the search space as arrays."""
        return search_space(options)

    def search(self, space: SearchSpace, devices: Devices) -> Found | NotFound:
        """Search in the planner's mode; if `best-plan` finds no plan, search as `same-plan`."""
        from planners.embedding.same_plan.search import SamePlan

        proven, tried = 0.0, ""
        if self._best:
            from planners.embedding.best_plan.search import MOST_FOR_ALL_PROPOSALS, best_plan

            planner = self._planner
            if planner._previous is not None:
                outcome = self._near(space, devices, planner._previous)
            else:
                outcome = best_plan(space, devices, self._deadline, planner._seed)
            if isinstance(outcome, Found):
                return outcome
            proven, tried = outcome.bound, outcome.tried
            obstacle = obstacles.of_proposers(self._proposers, self._topology)
            large = space.tables * devices.ranks > MOST_FOR_ALL_PROPOSALS
            if math.isinf(proven) and (large or obstacle):
                return replace(outcome, smallest=least_memory(space))
            if obstacle is not None:
                raise NotCompiled(f"the search for the best plan finds none, and {obstacle}")
        rules = rules_of(self._partitioner)
        assert rules is not None
        self._same_plan = SamePlan(self._proposers, rules, self._deadline)
        outcome = self._same_plan(space, devices)
        if isinstance(outcome, NotFound):
            return replace(outcome, bound=proven, tried=tried)
        return replace(outcome, bound=proven)

    def _near(
        self, space: SearchSpace, devices: Devices, previous: "PreviousPlan"
    ) -> Found | NotFound:
        """Search for the best plan that moves no more than the budget from a previous plan."""
        from planners.embedding.best_plan.near.search import NearPlan, NearSearch

        previous.check_matches({option.fqn for option in space.options}, "The previous plan")
        if not NearSearch.can_search(space, devices):
            raise NotCompiled("moves are not counted for tables that depend on each other")
        search = NearSearch(
            space,
            devices,
            previous.moves,
            self._deadline,
            self._planner._seed,
        )
        outcome = search.search(self._planner._move_budget)
        return outcome.found if isinstance(outcome, NearPlan) else outcome

    @override
    def propose(self) -> list[ShardingOption] | None:
        """Return the next proposal of the search that is running, or None after the last one."""
        if self._torchrecs is not None:
            with _errors_distrusted():
                if not self._is_searched():
                    return self._next_of_torchrecs(self._torchrecs)
        if self._proposals:
            return self._proposals[0]
        if isinstance(self._outcome, Found | NotFound):  # replace the planner's counts
            self._planner._num_proposals = self.tried
            self._planner._num_plans = getattr(self._outcome, "partitions", 0)
        return None

    @staticmethod
    def _next_of_torchrecs(proposers: list[Proposer]) -> list[ShardingOption] | None:
        """Return the next proposal of the first proposer that has one, as torchrec does."""
        while proposers:
            proposal: list[ShardingOption] | None = proposers[0].propose()
            if proposal:
                return proposal
            del proposers[0]
        return None

    @override
    def partition(
        self, proposal: list[ShardingOption], storage_constraint: Topology
    ) -> list[ShardingOption]:
        """Return a proposal that is the plan found, or else call the planner's own partitioner."""
        if isinstance(self._outcome, Found) and self._proposals:
            return proposal
        if self._summed:
            raise PlannerError("The proposal with the least memory cannot be placed.")
        tried: list[ShardingOption] = self._partitioner.partition(
            proposal=proposal, storage_constraint=storage_constraint
        )
        return tried

    @override
    def feedback(
        self,
        partitionable: bool,
        plan: list[ShardingOption] | None = None,
        perf_rating: float | None = None,
        storage_constraint: Topology | None = None,
    ) -> None:
        """Go to the next proposal; raises WrongPlan if torchrec rates this one differently."""
        if self._torchrecs is not None:
            self._torchrecs[0].feedback(partitionable, plan, perf_rating, storage_constraint)
            return
        found = self._outcome.rating if isinstance(self._outcome, Found) else None
        if perf_rating != found:
            if found is None:
                raise WrongPlan("torchrec places a proposal that the compiled search does not")
            raise WrongPlan(
                f"the compiled search rates its plan {found} ms, torchrec {perf_rating}"
            )
        self._proposals.pop(0)


class LargerCaches(EmbeddingOffloadScaleupProposer):
    """TorchRec's proposer of larger caches, on copies of the options.

    It changes load factors, so its proposals are no choices among the options that are searched.
    """

    @override
    def load(
        self, search_space: list[ShardingOption], enumerator: Enumerator | None = None
    ) -> None:
        """Load copies of the options, because the proposer changes them.

        If a cached table lacks cache parameters, which TorchRec asserts, nothing is proposed.
        """
        if all(o.cache_params for o in search_space if o.compute_kernel == _CACHED):
            super().load([_copied(option, ShardingOption) for option in search_space], enumerator)


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


def placed(space: SearchSpace, found: Found) -> list[ShardingOption]:
    """Return a plan as copies of its options, with a rank for each shard."""
    plan = [_copied(space.options[option], _ChosenOption) for option in found.options]
    rank = iter(found.ranks.tolist())
    for option in plan:
        for shard in option.shards:
            shard.rank = next(rank)
    return plan


class _ChosenOption(ShardingOption):
    """An option with a fast hash and deepcopy; the copy is a ShardingOption with its own shards."""

    __hash__ = object.__hash__

    def __deepcopy__(self, memo: dict[int, Any] | None) -> ShardingOption:
        shards = [
            Shard([*s.size], [*s.offset], _twin(s.storage), _twin(s.perf), s.rank)
            for s in self.shards
        ]
        copied = with_shards(self, shards, ShardingOption)
        for name, value in vars(self).items():
            if name not in ("shards", "_tensor", "_module"):
                setattr(copied, name, copy.deepcopy(value, memo))
        return copied


def _twin(record: Any) -> Any:
    """Return a shallow copy of a plain object; this is faster than copy.copy."""
    twin = object.__new__(type(record))
    vars(twin).update(vars(record))
    return twin


def _copied(option: ShardingOption, kind: type[ShardingOption]) -> ShardingOption:
    if type(option) not in (ShardingOption, SharedOption):
        return copy.deepcopy(option)  # a user's own class copies itself
    return without_ranks(option, kind)
