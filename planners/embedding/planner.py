"""A drop-in EmbeddingShardingPlanner with a compiled search."""

import copy
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args

from torch import nn
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import (
    Enumerator,
    ParameterConstraints,
    Partitioner,
    PerfModel,
    PlanLoader,
    Proposer,
    Shard,
    ShardingOption,
    Stats,
    StorageReservation,
    Topology,
)
from torchrec.distributed.types import ModuleSharder, ShardingPlan
from typing_extensions import override

from planners.embedding.search.enumeration import DistinctShardEnumerator, SharedOption
from planners.embedding.search.outcome import Found, NotFound
from planners.embedding.search.space import Devices, SearchSpace, devices_of, search_space

if TYPE_CHECKING:
    from planners.embedding.search.same_plan import SamePlan

logger = logging.getLogger(__name__)

Mode = Literal["same-plan", "best-plan"]


class Planner(EmbeddingShardingPlanner):
    """Plans like torchrec's EmbeddingShardingPlanner, whose arguments it takes, in less time.

    In mode `same-plan` it finds the plan that torchrec finds, to the last bit, with the same counts
    and errors; proposers are used as if they were new. In mode `best-plan` it searches for the best
    plan by torchrec's perf model by itself, and does as in `same-plan` only where it finds none.

    Where something is not compiled, such as a proposer that is not torchrec's own, a warning says
    so once, and torchrec's own search is used.

    Args:
        mode: which plan to look for.
        search_seconds: how long to look for the best plan; where it is None, `timeout_seconds`, and
            where that is None too, as long as the search finds useful.
        seed: of the search for the best plan.

    Raises:
        ValueError: there is no such mode.
    """

    def __init__(
        self,
        topology: Topology | None = None,
        batch_size: int | None = None,
        enumerator: Enumerator | None = None,
        storage_reservation: StorageReservation | None = None,
        proposer: Proposer | list[Proposer] | None = None,
        partitioner: Partitioner | None = None,
        performance_model: PerfModel | None = None,
        stats: Stats | list[Stats] | None = None,
        constraints: dict[str, ParameterConstraints] | None = None,
        debug: bool = True,
        callbacks: list[Callable[[list[ShardingOption]], list[ShardingOption]]] | None = None,
        timeout_seconds: int | None = None,
        plan_loader: PlanLoader | None = None,
        *,
        mode: Mode = "same-plan",
        search_seconds: float | None = None,
        seed: int = 0,
    ) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"The mode must be 'same-plan' or 'best-plan', not {mode!r}.")
        super().__init__(
            topology=topology,
            batch_size=batch_size,
            enumerator=enumerator,
            storage_reservation=storage_reservation,
            proposer=proposer,
            partitioner=partitioner,
            performance_model=performance_model,
            stats=stats,
            constraints=constraints,
            debug=debug,
            callbacks=callbacks,
            timeout_seconds=timeout_seconds,
            plan_loader=plan_loader,
        )
        self._mode = mode
        self._search_seconds = search_seconds
        self._seed = seed
        self._warned = False
        self._own_enumerator: Enumerator | None = None
        if not enumerator and self._obstacle() is None:
            self._enumerator = self._own_enumerator = DistinctShardEnumerator(
                topology=self._topology, batch_size=self._batch_size, constraints=constraints
            )

    @override
    def plan(self, module: nn.Module, sharders: list[ModuleSharder[nn.Module]]) -> ShardingPlan:
        """Return a plan for the module.

        Raises:
            PlannerError: there is no plan, as torchrec says it.
        """
        obstacle = self._obstacle()
        if obstacle is None:
            try:
                return self._plan_compiled(module, sharders)
            except _NotCompiled as error:
                obstacle = str(error)
        if not self._warned:
            logger.warning("The search is torchrec's own, since %s.", obstacle)
            self._warned = True
        if self._enumerator is self._own_enumerator:  # its options are not for torchrec to change
            self._enumerator = EmbeddingEnumerator(
                self._topology, self._batch_size, self._constraints
            )
        return super().plan(module, sharders)

    def _obstacle(self) -> str | None:
        from planners.embedding.search import obstacles

        return obstacles.of_components(
            self._proposers, self._partitioner, self._perf_model, self._topology.world_size
        )

    def _plan_compiled(
        self, module: nn.Module, sharders: list[ModuleSharder[nn.Module]]
    ) -> ShardingPlan:
        reservation = self._storage_reservation
        stand_in = CompiledSearch(self)
        reserve = stand_in.noting_topology(reservation.reserve)
        with (
            _replaced(reservation, reserve=reserve),
            _replaced(self, _proposers=[stand_in], _partitioner=stand_in),
        ):
            return super().plan(module, sharders)


@contextmanager
def _replaced(owner: object, **attributes: object) -> Iterator[None]:
    """Set attributes of one object for a while."""
    own = vars(owner)
    before = {name: own[name] for name in attributes if name in own}
    own.update(attributes)
    try:
        yield
    finally:
        for name in attributes:
            del own[name]
        own.update(before)


class _NotCompiled(Exception):
    """Something in the problem is not compiled; the text says what, as a clause."""


class CompiledSearch(Proposer, Partitioner):
    """Stands in for a planner's proposers and its partitioner in one call of `plan`.

    It searches when it is loaded, and then proposes what torchrec is to come to by itself: the plan
    that was found, or else the smallest proposal and the last one, which the planner's own
    partitioner refuses again.

    Attributes:
        tried: how many proposals were tried.
    """

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._proposers = planner._proposers
        self._partitioner = planner._partitioner
        self._topology: Topology | None = None
        self._same_plan: SamePlan | None = None
        self._outcome: Found | NotFound | None = None
        self._proposals: list[list[ShardingOption]] = []
        self.tried = 0

    @property
    def proposed(self) -> int:
        """How many proposals there have been so far, those that had been tried before included."""
        return self._same_plan.proposals if self._same_plan else self.tried

    def noting_topology(self, reserve: Callable[..., Topology]) -> Callable[..., Topology]:
        """Return a storage reservation's `reserve`, which now also tells this what is left."""

        def noting_reserve(*args: Any, **kwargs: Any) -> Topology:
            self._topology = reserve(*args, **kwargs)
            return self._topology

        return noting_reserve

    @override
    def load(
        self, search_space: list[ShardingOption], enumerator: Enumerator | None = None
    ) -> None:
        """Search for a plan; the options are not changed."""
        from planners.embedding.search import obstacles

        assert self._topology is not None
        try:
            space = self.flatten(search_space)
        except ValueError as error:
            raise _NotCompiled(str(error)) from None
        obstacle = obstacles.of_problem(space, self._topology, self._proposers)
        if obstacle is not None:
            raise _NotCompiled(obstacle)
        outcome = self.search(space, devices_of(self._topology))
        self._outcome = outcome
        self.tried = outcome.proposals
        if isinstance(outcome, Found):
            self._proposals = [_placed(space, outcome)]
            self._planner._num_plans = outcome.partitions - 1
        else:
            failed = [row.tolist() for row in (outcome.smallest, outcome.last) if row is not None]
            self._proposals = [
                [_copied(space.options[option], ShardingOption) for option in row]
                for row in (failed[:1] if failed[:1] == failed[1:] else failed)
            ]
        # The planner goes on counting from here, and so ends with all that were tried.
        self._planner._num_proposals = self.tried - len(self._proposals)

    def flatten(self, options: list[ShardingOption]) -> SearchSpace:
        """Return the search space as arrays."""
        return search_space(options)

    def search(self, space: SearchSpace, devices: Devices) -> Found | NotFound:
        """Search as the planner's mode says."""
        from planners.embedding.search.partition import rules_of
        from planners.embedding.search.same_plan import SamePlan

        planner = self._planner
        if planner._mode == "best-plan":
            from planners.embedding.search.certified import best_plan

            seconds = planner._search_seconds or planner._timeout_seconds
            outcome = best_plan(space, devices, seconds=seconds, seed=planner._seed)
            if isinstance(outcome, Found):
                return outcome
        rules = rules_of(self._partitioner)
        assert rules is not None
        self._same_plan = SamePlan(self._proposers, rules, planner._timeout_seconds)
        return self._same_plan(space, devices)

    @override
    def propose(self) -> list[ShardingOption] | None:
        """Return what is still to be placed."""
        return self._proposals[0] if self._proposals else None

    @override
    def partition(
        self, proposal: list[ShardingOption], storage_constraint: Topology
    ) -> list[ShardingOption]:
        """Return the plan that was found, or let the planner's partitioner find none."""
        if isinstance(self._outcome, Found):
            return proposal
        placed: list[ShardingOption] = self._partitioner.partition(
            proposal=proposal, storage_constraint=storage_constraint
        )
        return placed

    @override
    def feedback(
        self,
        partitionable: bool,
        plan: list[ShardingOption] | None = None,
        perf_rating: float | None = None,
        storage_constraint: Topology | None = None,
    ) -> None:
        """Go on, unless torchrec disagrees with the search.

        Raises:
            RuntimeError: it does.
        """
        found = self._outcome.rating if isinstance(self._outcome, Found) else None
        if perf_rating != found:
            raise RuntimeError(f"The search rates its plan {found} ms, but torchrec {perf_rating}.")
        self._proposals.pop(0)


def _placed(space: SearchSpace, found: Found) -> list[ShardingOption]:
    plan = [_copied(space.options[option], _ChosenOption) for option in found.options]
    rank = iter(found.ranks.tolist())
    for option in plan:
        for shard in option.shards:
            shard.rank = next(rank)
    return plan


class _ChosenOption(ShardingOption):
    """An option that is quick to hash and to copy; the copy is torchrec's, and shares nothing."""

    __hash__ = object.__hash__

    def __deepcopy__(self, memo: dict[int, Any] | None) -> ShardingOption:
        copied = object.__new__(ShardingOption)
        for name, value in vars(self).items():
            if name == "shards":
                value = [
                    Shard(
                        [*shard.size],
                        [*shard.offset],
                        _twin(shard.storage),
                        _twin(shard.perf),
                        shard.rank,
                    )
                    for shard in self.shards
                ]
            elif name not in ("_tensor", "_module"):
                value = copy.deepcopy(value, memo)
            setattr(copied, name, value)
        return copied


def _twin(record: Any) -> Any:
    """Return a shallow copy of a plain record, in less time than copy.copy takes."""
    twin = object.__new__(type(record))
    vars(twin).update(vars(record))
    return twin


def _copied(option: ShardingOption, kind: type[ShardingOption]) -> ShardingOption:
    """Return an option that has shards of its own, which share their size and their estimates."""
    if type(option) not in (ShardingOption, SharedOption):
        return copy.deepcopy(option)  # somebody's own class knows best what it is made of
    copied = object.__new__(kind)
    vars(copied).update(vars(option))
    copied.shards = [
        Shard(shard.size, shard.offset, shard.storage, shard.perf) for shard in option.shards
    ]
    return copied
