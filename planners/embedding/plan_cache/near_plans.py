"""Uses the plan of a similar problem: again if it is near the bound, else as a start."""

import logging
import math
from dataclasses import replace

from torchrec.distributed.planner.types import PerfModel, Topology

from planners.embedding.best_plan.candidates import all_candidates
from planners.embedding.best_plan.near.search import NearSearch
from planners.embedding.best_plan.proofs import proofs
from planners.embedding.drop_in.compiled_search import placed
from planners.embedding.drop_in.plan_check import fault_of
from planners.embedding.plan_files.document import PlanDocument
from planners.embedding.plan_files.table import PlanTable
from planners.embedding.search.outcome import Deadline, Found
from planners.embedding.search.space import Devices, SearchSpace, load_of

logger = logging.getLogger("shardbench")


class NearPlans:
    """Plans of a problem that are near the plan of a similar one; `label` is for messages."""

    def __init__(
        self,
        space: SearchSpace,
        devices: Devices,
        similar: PlanDocument,
        label: str,
        near: float,
        deadline: Deadline,
    ) -> None:
        self._space, self._devices = space, devices
        self._similar = PlanTable.of_document(similar)
        self._label, self._near, self._deadline = label, near, deadline
        self._found = all_candidates(space, devices)
        self._proofs = proofs(self._found, deadline=deadline)
        self._bound = next(self._proofs).milliseconds

    def used_again(self, left: Topology, perf_model: PerfModel) -> Found | None:
        """Return the similar plan if it fits this problem and is near the proven bound.

        `left` is the topology after the storage reservation. The plan places the same tables, by
        name, with the same sharding types, kernels and ranks.
        """
        same_machine = self._similar.world_size == self._devices.ranks
        plan = self._similar.chosen(self._space) if same_machine else None
        if plan is None or not 0 < self._bound < math.inf:
            return None
        rating = load_of(self._found.space, *plan, self._found.devices.ranks).rating
        for proof in self._proofs:
            if rating <= self._bound * (1 + self._near):
                break
            self._bound = proof.milliseconds
        share = rating / self._bound - 1
        figures = (self._label, rating, self._bound, 100 * share)
        if share > self._near:
            logger.info("%s is not used again: %.6g ms, bound %.6g ms, %.2f %% above it.", *figures)
            return None
        found = Found(*plan, rating, 1, 1, min(self._bound, rating))
        names = {option.fqn for option in self._space.options}
        fault = fault_of(placed(self._space, found), rating, names, left, perf_model)
        if fault:
            logger.info("%s is not used again, since %s.", self._label, fault)
            return None
        logger.info("%s is used again: %.6g ms, bound %.6g ms, %.2f %% above it.", *figures)
        return found

    def started_from(self, most_moved: float, seed: int) -> Found | None:
        """Search from the similar plan; the share `most_moved` of its bytes may move.

        The bytes, of all and of what moves, are those of weights and optimizer state. Return None
        if the search does not support the problem. The best plan without a limit is returned if it
        is more than the share `near` better.
        """
        if not NearSearch.can_search(self._space, self._devices):
            return None
        previous = self._similar
        search = NearSearch(
            self._space,
            self._devices,
            previous.moves,
            self._deadline,
            seed,
        )
        budget = most_moved * previous.total_bytes(self._space.options)
        near, best = search.search(budget), search.unlimited
        if not isinstance(near, Found):
            return best if isinstance(best, Found) else None
        bound = max(self._bound, best.bound)
        if isinstance(best, Found) and near.rating > best.rating * (1 + self._near):
            logger.info(
                "The plan near %s rates %.6g ms, the best one %.6g ms, so that is used.",
                *(self._label, near.rating, best.rating),
            )
            return best
        logger.info(
            "The plan starts from %s: %.6g ms, bound %.6g ms; it moves %.4g GiB.",
            *(self._label, near.rating, bound, near.moved / 2**30),
        )
        return replace(near, bound=bound)
