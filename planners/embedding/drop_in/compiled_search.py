"""Runs the compiled search in place of a planner's proposers and its partitioner."""

import copy
import math
from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import EmbeddingOffloadScaleupProposer
from torchrec.distributed.planner.types import (
    Enumerator,
    Partitioner,
    Perf,
    PlannerError,
    Proposer,
    Shard,
    ShardingOption,
    Storage,
    Topology,
)
from typing_extensions import override

from harness.contract import UsageError
from planners.embedding.drop_in.checks import (
    fault_of,
    obstacle_of_problem,
    obstacle_of_proposers,
)
from planners.embedding.same_plan.proposals import rules_of
from planners.embedding.same_plan.search import SamePlan
from planners.embedding.search import warm_up
from planners.embedding.search.options import copy_without_ranks, with_shards
from planners.embedding.search.outcome import Deadline, Found, NotFound, placed
from planners.embedding.search.space import Devices, Ints, SearchSpace, devices_of, search_space

Options = list[ShardingOption]
Proposals = Generator[Options, Any, None]
"""Proposals that get torchrec's feedback: whether placed, the plan, its rating, the devices."""

SMALL = 50_000
"""Options times tables times ranks up to which torchrec's search takes less time than loading the
compiled search into a process."""

MOST_SHARDS = 2_000_000
"""Shards of a proposal up to which they are created as objects: about 1 GB."""


class NotCompiled(Exception):
    """The compiled search does not support the problem; the message is a clause with the reason."""


class WrongPlan(NotCompiled):
    """The compiled search failed or found a wrong plan; the message is a clause with the reason."""


class CompiledSearch(Proposer, Partitioner):
    """Stands in for a planner's proposers and its partitioner in one call of `plan`.

    Its proposals come from one generator, `_searched`, which searches on its way.

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
        self._proposals: Proposals
        self._proposal: Options | None = None
        self._takes_over = False  # from torchrec's own search, once the kernels are compiled
        self._same_plan: SamePlan | None = None
        self.outcome: Found | NotFound = NotFound(None, None, 0)
        if self._best:
            warm_up.begin(warm_up.BEST_PLAN)

    @property
    def proposed(self) -> int:
        """The number of proposals so far, including repeated proposals."""
        return self._same_plan.proposals if self._same_plan else self.outcome.proposals

    def stand_ins(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield the attributes to replace while the planner plans, as (owner, name, value)."""
        planner, reservation = self._planner, self._planner._storage_reservation
        larger_caches = [
            LargerCaches(proposer.use_depth)
            for proposer in self._proposers
            if type(proposer) is EmbeddingOffloadScaleupProposer
            and self._best
            and planner._previous is None
        ]
        yield reservation, "reserve", partial(self._reserve, reservation.reserve)
        yield planner, "_proposers", [self, *larger_caches]
        yield planner, "_partitioner", self

    def _reserve(self, reserve: Any, *args: Any, **kwargs: Any) -> Topology:
        """Reserve memory, and keep the topology for the search."""
        try:
            self._topology = reserve(*args, **kwargs)
        except PlannerError:  # the reservation needs more than all memory
            if self._best:
                self.outcome = NotFound(None, None, 0, bound=math.inf)
            raise
        return self._topology

    @override
    def load(self, search_space: Options, enumerator: Enumerator | None = None) -> None:
        """Search for a plan without changing the options; raises NotCompiled or WrongPlan."""
        self._propose_from(self._searched(search_space))

    @override
    def propose(self) -> Options | None:
        """Return the next proposal, or None after the last one."""
        return self._proposal

    @override
    def feedback(
        self,
        partitionable: bool,
        plan: Options | None = None,
        perf_rating: float | None = None,
        storage_constraint: Topology | None = None,
    ) -> None:
        """Go to the next proposal; raises WrongPlan if torchrec rates this one differently."""
        self._go_on(partitionable, plan, perf_rating, storage_constraint)

    @override
    def partition(self, proposal: Options, storage_constraint: Topology) -> Options:
        """Return a proposal that is the plan found, or else call the planner's own partitioner."""
        if proposal is self._proposal and isinstance(self.outcome, Found):
            return proposal
        if not proposal[0].shards[0].size:  # see `failed_proposals`
            raise PlannerError("The proposal with the least memory cannot be placed.")
        plan: Options = self._partitioner.partition(
            proposal=proposal, storage_constraint=storage_constraint
        )
        return plan

    def _propose_from(self, proposals: Proposals) -> None:
        """Take the proposals from this generator."""
        self._proposals = proposals
        self._go_on()

    def _go_on(self, *feedback: Any) -> None:
        """Go to the next proposal; raise WrongPlan in place of any unexpected error."""
        try:
            self._proposal = self._proposals.send(feedback or None)
        except StopIteration:
            self._proposal = None
        except (NotCompiled, UsageError):
            raise
        except Exception as error:
            reason = f"the compiled search failed with {type(error).__name__}: {error}"
            raise WrongPlan(reason.rstrip(".")) from error

    def _searched(self, options: Options) -> Proposals:
        """Search; yield proposals that lead torchrec to the outcome."""
        planner = self._planner
        # 1. Time passes from here on; compiling does not use up the limit of the best plan.
        if self._best and planner._limit is not None:
            warm_up.ready(warm_up.BEST_PLAN)
        self._deadline = Deadline(planner._limit, planner._clock)
        # 2. In mode `same-plan`, torchrec's own search finds the same plan. It searches a SMALL
        #    problem if the compiled search is not loaded, and a larger one until that is compiled.
        tables = {option.fqn for option in options}
        size = len(options) * len(tables) * self._topology.world_size
        if not self._best and size <= SMALL and not warm_up.are_loaded(warm_up.SAME_PLAN):
            yield from self._torchrecs(options)
            return
        space = self._supported(options)
        if not self._best:
            self._takes_over = True
            if not (yield from self._torchrecs(options)):
                return
        # 3. The compiled search.
        outcome = self.outcome = self.search(space, devices_of(self._topology))
        if isinstance(outcome, NotFound):
            yield from self._lead_to(failed_proposals(space, outcome), None)
            return
        plan = placed(space, outcome)
        partitioner = self._partitioner if self._same_plan else None
        if planner._check and (
            fault := fault_of(planner, plan, outcome.rating, tables, self._topology, partitioner)
        ):
            raise WrongPlan(fault)
        yield from self._lead_to([plan], outcome.rating)

    def _torchrecs(self, options: Options) -> Generator[Options, Any, bool]:
        """Propose as torchrec does; return early, and True, once the compiled search takes over.

        The planner's proposers keep state, so copies of them propose, with copies of the options.
        """
        if self._are_compiled():
            return True
        proposers: list[Proposer] = copy.deepcopy(self._proposers)
        copies = [copy_without_ranks(option) for option in options]
        for proposer in proposers:
            proposer.load(search_space=copies, enumerator=self._planner._enumerator)
        for proposer in proposers:
            while proposal := proposer.propose():
                proposer.feedback(*(yield proposal))
                if self._are_compiled():
                    return True
        return False

    def _are_compiled(self) -> bool:
        """Whether the compiled search takes over now; starts to compile it if it is not cached."""
        try:
            if not self._takes_over or not warm_up.advance(warm_up.SAME_PLAN):
                return False
        except warm_up.CannotCompile as error:
            self._takes_over = False
            self._planner._say(str(error))
            return False
        warm_up.load(warm_up.SAME_PLAN)
        return True

    def _lead_to(self, proposals: list[Options], rating: float | None) -> Proposals:
        """Propose what torchrec must rate so, None if it must not place it; set its counts."""
        for proposal in proposals:
            _, _, torchrecs, _ = yield proposal
            if torchrecs != rating:
                raise WrongPlan(
                    "torchrec places a proposal that the compiled search does not"
                    if rating is None
                    else f"the compiled search rates its plan {rating} ms, torchrec {torchrecs}"
                )
        self._planner._num_proposals = self.outcome.proposals
        self._planner._num_plans = self.outcome.partitions

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

    def flatten(self, options: Options) -> SearchSpace:
        """Return the search space as arrays."""
        return search_space(options)

    def search(self, space: SearchSpace, devices: Devices) -> Found | NotFound:
        """Search in the planner's mode; if `best-plan` finds no plan, search as `same-plan`."""
        if not self._best:
            return self._search_same(space, devices)
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
        outcome = self._search_same(space, devices)
        if isinstance(outcome, Found):
            return replace(outcome, bound=best.bound)
        return replace(outcome, bound=best.bound, tried=best.tried)

    def _search_same(self, space: SearchSpace, devices: Devices) -> Found | NotFound:
        rules = rules_of(self._partitioner)
        assert rules is not None
        self._same_plan = SamePlan(self._proposers, rules, self._deadline)
        return self._same_plan(space, devices)

    def _search_best(self, space: SearchSpace, devices: Devices) -> Found | NotFound:
        """Search for the best plan, or for the best one within the budget of a previous plan."""
        planner, previous = self._planner, self._planner._previous
        if previous is None:
            from planners.embedding.best_plan.search import best_plan

            return best_plan(space, devices, self._deadline, planner._seed)
        from planners.embedding.best_plan.replanning import Replanning
        from planners.embedding.best_plan.torchrec_rules import can_be_placed_locally

        previous.check_matches({option.fqn for option in space.options}, "The previous plan")
        if not can_be_placed_locally(space, devices):
            raise NotCompiled("moves are not counted for tables that depend on each other")
        near = Replanning(space, devices, previous.moves, self._deadline, planner._seed)
        return near.search(planner._move_budget)


class LargerCaches(EmbeddingOffloadScaleupProposer):
    """TorchRec's proposer of larger caches, on copies of the options.

    It changes load factors, so its proposals are no choices among the options that are searched.
    """

    @override
    def load(self, search_space: Options, enumerator: Enumerator | None = None) -> None:
        """Load copies of the options, because the proposer changes them.

        If a cached table lacks cache parameters, which TorchRec asserts, nothing is proposed.
        """
        cached = EmbeddingComputeKernel.FUSED_UVM_CACHING.value
        if all(o.cache_params for o in search_space if o.compute_kernel == cached):
            copies = [copy_without_ranks(option) for option in search_space]
            super().load(copies, enumerator)


def failed_proposals(space: SearchSpace, outcome: NotFound) -> list[Options]:
    """Return the smallest and the last failed proposal, whose memory torchrec's error has.

    If either has more than MOST_SHARDS, each option has one shard, without a size, with its whole
    memory, so it cannot be placed.
    """
    failed = (outcome.smallest, outcome.last)
    rows = dict.fromkeys(tuple(row.tolist()) for row in failed if row is not None)
    counts = np.diff(space.first_shard)
    summed = any(counts[[*row]].sum() > MOST_SHARDS for row in rows)

    def copied(number: int) -> ShardingOption:
        option = space.options[number]
        if not summed:
            return copy_without_ranks(option)
        storage = Storage(*space.option_storage[number].tolist())
        perf = Perf(float(space.option_perf[number]), 0.0, 0.0, 0.0)
        return with_shards(option, [Shard([], [], storage, perf)])

    return [[*map(copied, row)] for row in rows]


def least_memory(space: SearchSpace) -> Ints:
    """Return each table's option with the least HBM, then DDR, then SSD, shape (T,)."""
    order = np.lexsort((*space.option_storage.T[::-1], space.table))
    return np.asarray(order[np.searchsorted(space.table[order], np.arange(space.tables))])
