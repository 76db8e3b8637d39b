"""A compiled search that first looks for its plan among the plans in a folder.

1. The plan of exactly this problem is loaded without enumerating the options: a `hit`.
2. In mode `best-plan`, the plan of a similar problem is used again if it fits and is near a proven
   bound: a `near hit`.
3. Otherwise the search starts from it and moves little, unless that costs too much: a `start`.
4. Otherwise it is a search as without a folder.
"""

import copy
import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import msgspec
import numpy as np
from torch import nn
from torchrec.distributed.planner.types import ShardingOption
from torchrec.distributed.types import ModuleSharder
from typing_extensions import override

from harness.contract import InfeasibleDecision, UsageError
from planners.embedding.best_plan.candidates import all_candidates
from planners.embedding.best_plan.proofs import proofs
from planners.embedding.best_plan.replanning import Replanning
from planners.embedding.best_plan.torchrec_rules import can_be_placed_locally
from planners.embedding.capture.file import plain
from planners.embedding.capture.mirrors import device_runs
from planners.embedding.drop_in.checks import fault_of
from planners.embedding.drop_in.compiled_search import CompiledSearch
from planners.embedding.drop_in.planner import Planner
from planners.embedding.plan_cache.folder import PlanFile, PlanFolder, digest
from planners.embedding.plan_files.document import PlanDocument, TableEntry, parse_plan
from planners.embedding.plan_files.table import PlanTable
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.options import (
    PlannedOption,
    ShardLayout,
    SharedOption,
    with_shards,
)
from planners.embedding.search.outcome import Found, NotFound, placed
from planners.embedding.search.space import Devices, SearchSpace, load_of

logger = logging.getLogger("shardbench")

_MOST_OTHERS = 4  # files of other tables that are read to find similar ones
_COMMON = 0.9  # least part of the tables that two similar problems share
_NONE = np.empty(0, np.int64)
Options = list[ShardingOption]
Sharders = list[ModuleSharder[nn.Module]]


class CachedSearch(CompiledSearch):
    """Loads the plan of exactly this problem, or searches, perhaps from the plan of a similar one.

    `use` is how the plan was found: a `hit`, a `near hit`, from a `start`, or "" if the folder was
    of no use. `inputs` describes the problem, for its key; `near` and `most_moved` are PlanCache's.
    """

    def __init__(
        self, planner: Planner, inputs: bytes, folder: PlanFolder, near: float, most_moved: float
    ) -> None:
        super().__init__(planner)
        self._inputs, self._folder, self._near, self._most_moved = inputs, folder, near, most_moved
        self._key = ""
        self.use = ""

    @override
    def stand_ins(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield replacements as for a search; the enumerator returns a known plan's options."""
        yield from super().stand_ins()
        enumerator = self._planner._enumerator
        enumerate_ = enumerator.enumerate

        def enumerate_or_load(module: nn.Module, sharders: Sharders) -> Options:
            left = msgspec.json.encode(device_runs(self._topology))  # after the reservation
            self._key = digest(self._inputs, left, letters=32)
            return self._known(module, sharders) or enumerate_(module=module, sharders=sharders)

        yield enumerator, "enumerate", enumerate_or_load

    def _known(self, module: nn.Module, sharders: Sharders) -> Options | None:
        """Take the plan of exactly this problem as the outcome, if a file's passes all checks."""
        planner = self._planner
        for file in self._folder.files():
            document = self._document(file) if file.key == self._key else None
            if document is None:
                continue
            try:
                enumerator = cast(DistinctShardEnumerator, planner._enumerator)
                plan = _options_of(document, enumerator, module, sharders)
                figures, names = document.quality, {option.fqn for option in plan}
                rating, bound = figures["max_rank_ms"], figures["bound_ms"]
                counts = int(figures["proposals"]), int(figures["plans"])
                fault = fault_of(planner, plan, rating, names, self._topology)
            except Exception as error:  # a user's own sharder may raise anything
                fault = str(error).rstrip(".")
            if fault:
                self._folder.report(f"{file.path} is not used, since it is wrong: {fault}.")
                continue
            self.outcome, self.use = Found(_NONE, _NONE, rating, *counts, bound), "hit"
            self._folder.touch(file)
            return plan
        return None

    @override
    def load(self, search_space: Options, enumerator: Any = None) -> None:
        """Search for a plan, unless it is known and is the search space."""
        if isinstance(self.outcome, Found):
            self._propose_from(self._lead_to([search_space], self.outcome.rating))
        else:
            super().load(search_space, enumerator)

    @override
    def search(self, space: SearchSpace, devices: Devices) -> Found | NotFound:
        """Search from the plan of a similar problem in mode `best-plan`, else as without plans."""
        similar = self._similar({option.name for option in space.options}) if self._best else None
        if similar is None:
            return super().search(space, devices)
        file, document = similar
        known = PlanTable.of_document(document)
        plan, bound = self._used_again(space, devices, known)
        if plan is not None:
            self._folder.touch(file)
            self.use, sentence = "near hit", "%s is used again"
        else:
            if can_be_placed_locally(space, devices):
                plan = self._started_from(space, devices, known)
            if plan is None:
                return super().search(space, devices)
            self.use, sentence = "start", "The search starts from %s"
        plan = replace(plan, bound=max(plan.bound, min(bound, plan.rating)))
        logger.info(
            f"{sentence}: %.6g ms, bound %.6g ms, %.2f %% above it.",
            *(file.path.name, plan.rating, plan.bound),
            100 * (plan.rating / plan.bound - 1) if plan.bound else math.inf,
        )
        return plan

    def _used_again(
        self, space: SearchSpace, devices: Devices, known: PlanTable
    ) -> tuple[Found | None, float]:
        """Return the known plan if it fits this problem and is near a bound; and the bound in ms.

        The plan places the same tables, by name, with the same sharding types, kernels and ranks.
        """
        rungs = ("memory", "costs", "patterns")  # packing would take longer than it saves
        ladder = proofs(all_candidates(space, devices), deadline=self._deadline, rungs=rungs)
        bound = next(ladder).milliseconds
        plan = known.chosen(space) if known.world_size == devices.ranks else None
        if plan is None or not 0 < bound < math.inf:
            return None, bound
        rating = load_of(space, *plan, devices.ranks).rating
        while rating > bound * (1 + self._near) and (proof := next(ladder, None)):
            bound = proof.milliseconds
        again = Found(*plan, rating, 1, 1)
        names = {option.fqn for option in space.options}
        if rating > bound * (1 + self._near) or (
            fault_of(self._planner, placed(space, again), rating, names, self._topology)
        ):
            return None, bound
        return again, bound

    def _started_from(self, space: SearchSpace, devices: Devices, known: PlanTable) -> Found | None:
        """Search from the known plan; the share `most_moved` of its bytes may move.

        Return the best plan without a limit if it is more than the share `near` better, and None if
        there is no plan.
        """
        search = Replanning(space, devices, known.moves, self._deadline, self._planner._seed)
        plan = search.search(self._most_moved * known.total_bytes(space.options))
        best = search.unlimited
        if not isinstance(plan, Found) or (
            isinstance(best, Found) and plan.rating > best.rating * (1 + self._near)
        ):
            plan = best
        # The bound of a plan near to another one is not of all plans.
        return replace(plan, bound=best.bound) if isinstance(plan, Found) else None

    def _similar(self, names: set[str]) -> tuple[PlanFile, PlanDocument] | None:
        """Return the plan last used for the same tables, else one with most tables in common."""
        files, subject = self._folder.files(), _subject(names)
        same = [file for file in files if file.subject == subject]
        others = [file for file in files if file.subject != subject][:_MOST_OTHERS]
        similar, most = None, 0.0
        for file in (*same, *others):
            if most < 1 and (document := self._document(file)):
                tables = {table.name for table in document.tables}
                common = len(tables & names) / max(len(tables), len(names))
                if common > most:
                    similar, most = (file, document), common
        return similar if most >= _COMMON else None

    def store(self, plan: Options) -> None:
        """Store the plan that torchrec took, unless it was known."""
        if self.use == "hit" or not plan:
            return
        planner = self._planner
        quality = {
            "max_rank_ms": float(planner._perf_model.rate(plan)),
            "bound_ms": float(self.outcome.bound),
            "proposals": planner._num_proposals,
            "plans": planner._num_plans,
        }
        document = PlanDocument.of(planner._topology, quality, plan)
        subject = _subject({option.name for option in plan})
        self._folder.write(subject, self._key, msgspec.json.encode(document, enc_hook=plain))

    def _document(self, file: PlanFile) -> PlanDocument | None:
        content = self._folder.read(file)
        try:
            return None if content is None else parse_plan(file.path, content)
        except UsageError as error:
            self._folder.report(str(error))
            return None


def _subject(names: set[str]) -> str:
    """Return a hash of table names."""
    return digest("\n".join(sorted(names)).encode("utf-8", "surrogatepass"), letters=16)


def _options_of(
    plan: PlanDocument, enumerator: DistinctShardEnumerator, module: nn.Module, sharders: Sharders
) -> Options:
    """Return a plan's options in its order, as `enumerator` would make them for a model.

    Raises an error if the model has other tables, or if torchrec does not allow an option or cuts
    its table otherwise.
    """
    chosen = {table.name: table for table in plan.tables}
    own: Any = copy.copy(enumerator)
    del own.enumerate  # which is replaced while the planner plans
    own._last_stored_module = None  # else torchrec returns what it enumerated before
    own.populate_estimates = _make_cheap_to_copy

    def pass_only(method: str, attribute: str) -> None:
        """Let a filter of the enumerator pass nothing but the plan's choice."""
        allowed = getattr(enumerator, method)

        def of_plan(name: str, *given: object) -> list[str]:
            wanted = getattr(chosen[name], attribute)
            return [kind for kind in allowed(name, *given) if kind == wanted]

        setattr(own, method, of_plan)

    pass_only("_filter_sharding_types", "sharding_type")
    pass_only("_filter_compute_kernels", "compute_kernel")
    options = own.enumerate(module, sharders)
    # Statistics read the sharders of the enumerator.
    enumerator.__dict__.update(
        (n, value) for n, value in vars(own).items() if n.startswith("_sharder")
    )
    enumerator.postponed = (module, sharders)
    made = {option.name: option for option in options}
    if made.keys() != chosen.keys():
        raise InfeasibleDecision(f"The plan has {len(chosen)} tables, not {len(made)}.")
    return [_with_plan(made[name], table) for name, table in chosen.items()]


def _make_cheap_to_copy(options: Options) -> None:
    for option in options:
        option.__class__ = SharedOption


def _with_plan(option: ShardingOption, table: TableEntry) -> ShardingOption:
    shards = [entry.shard() for entry in table.shards]
    layout = option.shards[0].size
    made = layout.shards() if isinstance(layout, ShardLayout) else option.shards
    cut = [([*shard.size], [*shard.offset]) for shard in made]
    if cut != [(shard.size, shard.offset) for shard in shards]:
        raise InfeasibleDecision(f"Table {option.name} is cut otherwise in the plan.")
    return with_shards(option, shards, PlannedOption)
