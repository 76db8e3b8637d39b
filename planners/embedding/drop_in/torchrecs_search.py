"""TorchRec's own proposers, one after the other, in the place of a planner's only proposer."""

from collections.abc import Sequence

from torchrec.distributed.planner.types import Enumerator, Proposer, ShardingOption, Topology
from typing_extensions import override


class TorchrecsSearch(Proposer):
    """Proposes what the proposers of a planner propose, in torchrec's order."""

    def __init__(self, proposers: Sequence[Proposer]) -> None:
        self._proposers = list(proposers)

    @override
    def load(
        self, search_space: list[ShardingOption], enumerator: Enumerator | None = None
    ) -> None:
        """Load all proposers, as torchrec does before the first one proposes."""
        for proposer in self._proposers:
            proposer.load(search_space=search_space, enumerator=enumerator)

    @override
    def propose(self) -> list[ShardingOption] | None:
        """Return the next proposal of the first proposer that has one."""
        while self._proposers:
            proposal: list[ShardingOption] | None = self._proposers[0].propose()
            if proposal:
                return proposal
            del self._proposers[0]
        return None

    @override
    def feedback(
        self,
        partitionable: bool,
        plan: list[ShardingOption] | None = None,
        perf_rating: float | None = None,
        storage_constraint: Topology | None = None,
    ) -> None:
        """Pass on how the last proposal was rated."""
        self._proposers[0].feedback(partitionable, plan, perf_rating, storage_constraint)
