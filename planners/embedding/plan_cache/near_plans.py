"""Uses the plan of a similar problem: again if it is near the bound, else as a start."""

import logging
import math
from dataclasses import replace

import numpy as np
from torchrec.distributed.planner.types import PerfModel, Topology

from planners.embedding.best_plan.candidates import all_candidates
from planners.embedding.best_plan.near.search import NearPlan, NearSearch
from planners.embedding.best_plan.proofs import proofs
from planners.embedding.drop_in.compiled_search import placed
from planners.embedding.drop_in.plan_check import fault_of
from planners.embedding.plan_files.document import PlanDocument
from planners.embedding.plan_files.previous import previous_of
from planners.embedding.search.outcome import Deadline, Found
from planners.embedding.search.space import Devices, Ints, SearchSpace

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
        self._space, self._devices, self._similar = space, devices, similar
        self._label, self._near, self._deadline = label, near, deadline
        self._found = all_candidates(space, devices)
        # Packing would take longer than it saves.
        rungs = ("memory", "costs", "patterns")
        self._proofs = proofs(self._found, deadline=deadline, rungs=rungs)
        self._bound = next(self._proofs).milliseconds

    def used_again(self, left: Topology, perf_model: PerfModel) -> Found | None:
        """Return the similar plan if it fits this problem and is near the proven bound.

        `left` is the topology after the storage reservation. The plan places the same tables, by
        name, with the same sharding types, kernels and ranks.
        """
        plan = self._same_ranks()
        if plan is None or not 0 < self._bound < math.inf:
            return None
        rating = self._found.rate(*plan)
        while rating > self._bound * (1 + self._near):
            proof = next(self._proofs, None)
            if proof is None:
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

    def _same_ranks(self) -> tuple[Ints, Ints] | None:
        """Return each table's option of the similar plan, and the ranks; None if one is missing."""
        tables = {table.name: table for table in self._similar.tables}
        space, counts = self._space, np.diff(self._space.first_shard)
        if self._similar.world_size != self._devices.ranks or len(tables) != space.tables:
            return None
        options = np.full(space.tables, -1)
        ranks: list[list[int]] = [[] for _ in range(space.tables)]
        for number in self._found.options.tolist():
            option = space.options[number]
            entry = tables.get(option.name)
            if entry is None or counts[number] != len(entry.shards):
                continue
            if (option.sharding_type, option.compute_kernel) == (
                entry.sharding_type,
                entry.compute_kernel,
            ):
                options[space.table[number]] = number
                ranks[space.table[number]] = [shard.rank for shard in entry.shards]
        return None if (options < 0).any() else (options, np.concatenate(ranks))

    def started_from(self, most_moved: float, seed: int) -> Found | None:
        """Search from the similar plan; the share `most_moved` of its bytes may move.

        The bytes, of all and of what moves, are those of weights and optimizer state. Return None
        if the search does not support the problem. The best plan without a limit is returned if it
        is more than the share `near` better.
        """
        if not NearSearch.can_search(self._space, self._devices):
            return None
        previous = previous_of(self._similar.tables, self._similar.world_size)
        search = NearSearch(
            self._space,
            self._devices,
            previous.moves,
            self._deadline,
            seed,
        )
        budget = most_moved * previous.total_bytes(self._space.options)
        near, best = search.search(budget), search.unlimited
        if not isinstance(near, NearPlan):
            return best if isinstance(best, Found) else None
        found = near.found
        bound = max(self._bound, best.bound)
        if isinstance(best, Found) and found.rating > best.rating * (1 + self._near):
            logger.info(
                "The plan near %s rates %.6g ms, the best one %.6g ms, so that is used.",
                *(self._label, found.rating, best.rating),
            )
            return best
        logger.info(
            "The plan starts from %s: %.6g ms, bound %.6g ms; it moves %.4g GiB.",
            *(self._label, found.rating, bound, near.bytes / 2**30),
        )
        return replace(found, bound=bound)
