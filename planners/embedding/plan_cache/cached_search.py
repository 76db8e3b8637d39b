"""A compiled search that first looks for its plan among the plans in a folder.

1. The plan of exactly this problem is loaded without enumerating the options: a `hit`.
2. In mode `best-plan`, the plan of a similar problem is used again if it fits and is near a proven
   bound: a `near hit`.
3. Otherwise the search starts from it and moves little, unless that costs too much: a `start`.
4. Otherwise it is a search as without a folder.
"""

import logging
import math
from collections.abc import Iterator, Mapping
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
from planners.embedding.best_plan.near.search import NearSearch
from planners.embedding.best_plan.proofs import proofs
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
_READ_BY_STATISTICS = ("_sharder_map", "_sharder_data_map")  # 1.6.1 has only the first
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
        self._inputs, self._folder, self._share, self._most_moved = inputs, folder, near, most_moved
        self._key = ""
        self.use = ""

    @override
    def stand_ins(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield what is replaced; the enumerator returns only a known plan's options, if any."""
        yield from super().stand_ins()
        enumerator = self._planner._enumerator
        enumerate_ = enumerator.enumerate

        def enumerate_or_load(module: nn.Module, sharders: Sharders) -> list[ShardingOption]:
            left = msgspec.json.encode(device_runs(self._topology))  # after the reservation
            self._key = digest(self._inputs, left, letters=32)
            return self._known(module, sharders) or enumerate_(module=module, sharders=sharders)

        yield enumerator, "enumerate", enumerate_or_load

    def _known(self, module: nn.Module, sharders: Sharders) -> list[ShardingOption] | None:
        """Return the plan of exactly this problem, if a file has one that passes all checks."""
        for file in self._folder.files():
            document = self._document(file) if file.key == self._key else None
            if document is None:
                continue
            try:
                enumerator = cast(DistinctShardEnumerator, self._planner._enumerator)
                plan = _options_of(document, enumerator, module, sharders)
                self._take(plan, document.quality)
            except Exception as error:  # a user's own sharder may raise anything
                self._folder.report(f"{file.path} is not used, since it is wrong: {error}")
                continue
            self._folder.touch(file)
            return plan
        return None

    def _take(self, plan: list[ShardingOption], figures: dict[str, float]) -> None:
        """Take a known plan as the outcome; raise UsageError if it does not fit this problem."""
        rating, names = figures["max_rank_ms"], {option.fqn for option in plan}
        if fault := fault_of(self._planner, plan, rating, names, self._topology):
            raise UsageError(f"{fault}.")
        counts = int(figures["proposals"]), int(figures["plans"])
        self.outcome = Found(_NONE, _NONE, rating, *counts, bound=figures["bound_ms"])
        self.use = "hit"

    @override
    def load(self, search_space: list[ShardingOption], enumerator: Any = None) -> None:
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
        known, label = PlanTable.of_document(document), file.path.name
        plan, bound = self._used_again(space, devices, known, label)
        if plan is not None:
            self._folder.touch(file)
            self.use = "near hit"
            return plan
        plan = self._started_from(space, devices, known, label, bound)
        if plan is not None:
            self.use = "start"
            return plan
        return super().search(space, devices)

    def _used_again(
        self, space: SearchSpace, devices: Devices, known: PlanTable, label: str
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
        while rating / bound - 1 > self._share and (proof := next(ladder, None)):
            bound = proof.milliseconds
        again, above = Found(*plan, rating, 1, 1, min(bound, rating)), rating / bound - 1
        fault = "it is not near enough" if above > self._share else None
        if fault is None:
            names, options = {option.fqn for option in space.options}, placed(space, again)
            fault = fault_of(self._planner, options, rating, names, self._topology)
        logger.info(
            "%s is %s: %.6g ms, bound %.6g ms, %.2f %% above it.",
            *(label, f"not used again, since {fault}" if fault else "used again"),
            *(rating, bound, 100 * above),
        )
        return (None if fault else again), bound

    def _started_from(
        self, space: SearchSpace, devices: Devices, known: PlanTable, label: str, bound: float
    ) -> Found | None:
        """Search from the known plan; the share `most_moved` of its bytes may move.

        Return the best plan without a limit if it is more than the share `near` better, and None if
        the search does not support the problem. `bound` is proven, in ms.
        """
        if not NearSearch.can_search(space, devices):
            return None
        search = NearSearch(space, devices, known.moves, self._deadline, self._planner._seed)
        plan = search.search(self._most_moved * known.total_bytes(space.options))
        best = search.unlimited
        if not isinstance(plan, Found):
            return best if isinstance(best, Found) else None
        if isinstance(best, Found) and plan.rating > best.rating * (1 + self._share):
            logger.info(
                "The plan near %s rates %.6g ms, the best one %.6g ms, so that is used.",
                *(label, plan.rating, best.rating),
            )
            return best
        plan = replace(plan, bound=max(bound, best.bound))
        logger.info(
            "The plan starts from %s: %.6g ms, bound %.6g ms; it moves %.4g GiB.",
            *(label, plan.rating, plan.bound, plan.moved / 2**30),
        )
        return plan

    def _similar(self, names: set[str]) -> tuple[PlanFile, PlanDocument] | None:
        """Return the plan last used for the same tables, else one with most tables in common."""
        files, subject = self._folder.files(), _subject(names)
        for file in files:
            if file.subject == subject and (document := self._document(file)):
                return file, document
        others = [
            (len(tables & names) / max(len(tables), len(names)), file, document)
            for file in files[:_MOST_OTHERS]
            if file.subject != subject and (document := self._document(file))
            for tables in [{table.name for table in document.tables}]
        ]
        best = max(others, key=lambda other: other[0], default=None)
        return best[1:] if best and best[0] >= _COMMON else None

    def store(self, plan: list[ShardingOption]) -> None:
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


class _ChosenOptions(DistinctShardEnumerator):
    """Enumerates with another enumerator's settings, but one option per table, unestimated."""

    def __init__(self, settings: DistinctShardEnumerator, chosen: Mapping[str, TableEntry]) -> None:
        self.__dict__.update(settings.__dict__)
        self.__dict__.pop("enumerate", None)  # a method that is replaced while a planner plans
        self._last_stored_module = None
        self._special = {}
        self._chosen = chosen

    @override
    def _filter_sharding_types(self, name: str, *allowed: object) -> list[str]:
        kinds = super()._filter_sharding_types(name, *allowed)
        return [kind for kind in kinds if kind == self._chosen[name].sharding_type]

    @override
    def _filter_compute_kernels(self, name: str, *allowed: object) -> list[str]:
        kernels = super()._filter_compute_kernels(name, *allowed)
        return [kernel for kernel in kernels if kernel == self._chosen[name].compute_kernel]

    @override
    def populate_estimates(self, sharding_options: list[ShardingOption]) -> None:
        """Leave the shards without estimates; only make the options cheap to copy."""
        for option in sharding_options:
            option.__class__ = SharedOption


def _options_of(
    plan: PlanDocument,
    enumerator: DistinctShardEnumerator,
    module: nn.Module,
    sharders: Sharders,
) -> list[ShardingOption]:
    """Return a plan's options in its order, as `enumerator` would make them for a model.

    Raises an error if the model has other tables, or if torchrec does not allow an option or cuts
    its table otherwise.
    """
    chosen = {table.name: table for table in plan.tables}
    own = _ChosenOptions(enumerator, chosen)
    made = own.enumerate(module, sharders)
    for name in _READ_BY_STATISTICS:
        if hasattr(own, name):
            setattr(enumerator, name, getattr(own, name))
    enumerator.postponed = (module, sharders)
    by_name = {option.name: option for option in made}
    if len(made) != len(plan.tables):
        raise InfeasibleDecision(f"The plan has {len(plan.tables)} tables, not {len(made)}.")
    return [_with_plan(by_name[name], table) for name, table in chosen.items()]


def _with_plan(option: ShardingOption, table: TableEntry) -> ShardingOption:
    shards = [entry.shard() for entry in table.shards]
    layout = option.shards[0].size
    made = layout.shards() if isinstance(layout, ShardLayout) else option.shards
    cut = [([*shard.size], [*shard.offset]) for shard in made]
    if cut != [(shard.size, shard.offset) for shard in shards]:
        raise InfeasibleDecision(f"Table {option.name} is cut otherwise in the plan.")
    return with_shards(option, shards, PlannedOption)
