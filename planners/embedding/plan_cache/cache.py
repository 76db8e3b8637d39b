"""A cache of plans for `Planner` and for torchrec's dry run: a folder with one file per plan."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from torch import nn
from torchrec.distributed.planner.types import ShardingOption, Topology
from torchrec.distributed.types import ModuleSharder

from harness.contract import ShardbenchError, UsageError
from planners.embedding.capture.modules import DTYPES
from planners.embedding.drop_in.cached_search import KnownPlan, figures_of
from planners.embedding.drop_in.plan_check import fault_of
from planners.embedding.drop_in.planner import Planner
from planners.embedding.plan_cache.chosen_options import options_of
from planners.embedding.plan_cache.folder import PlanFile, PlanFolder, digest
from planners.embedding.plan_cache.key import key_of, problem_inputs
from planners.embedding.plan_cache.near_plans import NearPlans
from planners.embedding.plan_files.document import PlanDocument, TableEntry, parse_plan
from planners.embedding.search.outcome import Deadline, Found
from planners.embedding.search.space import Devices, SearchSpace
from planners.embedding.tables.files import Table

_MOST_OTHERS = 4  # files of other tables that are read to find similar ones
_COMMON = 0.9  # least part of the tables that two similar problems share


class PlanCache:
    """Keeps the plans of planners in a folder, as files of `shardbench plan`.

    Pass it as `Planner(cache=...)`. A plan is stored under a hash of all inputs that decide it:
    tables, constraints, topology, memory after the reservation, batch size, sharders, components
    and their settings, mode, seed, limits and torchrec's release. Planning the same problem again
    loads the plan without a search, after checking it on this problem.

    In mode `best-plan` a similar plan helps, too: one of the same tables by name if a table or the
    machine changed, or else one with nine tenths of the tables in common. If it still fits, and its
    rating is at most the share `near` above the proven bound, it is used again. Otherwise the
    search starts from it, and may move a share `most_moved` of all weights. The plan found so is
    used if its rating is at most the share `near` above that of the best plan found without a
    limit, which is used otherwise.

    Damaged files, and a folder that cannot be written, cause a warning on the logger `shardbench`;
    planning goes on. The files together take `most_gib` GiB at most, and those used longest ago are
    removed first. Any number of processes may share the folder.

    Raises ValueError for a share or a size out of range.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        near: float = 0.01,
        most_moved: float = 0.1,
        most_gib: float = 1.0,
    ) -> None:
        for name, share in (("near", near), ("most_moved", most_moved)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name} must be a share from 0 to 1, not {share!r}.")
        if not most_gib > 0:
            raise ValueError(f"most_gib must be a size above 0 GiB, not {most_gib!r}.")
        self.near, self.most_moved = near, most_moved
        self.folder = PlanFolder(Path(folder), int(min(most_gib, 2**20) * 2**30))

    def problem(
        self,
        planner: Any,
        module: nn.Module,
        sharders: list[ModuleSharder[nn.Module]],
    ) -> "CachedProblem | None":
        """Return a problem's place in the cache, or None, after a warning, if it has none."""
        try:
            inputs = problem_inputs(planner, module, sharders)
        except ShardbenchError as error:
            self.folder.report(f"The plan is not kept: {error}")
            return None
        return CachedProblem(self, planner, module, sharders, inputs)


class CachedProblem:
    """A planning problem's place in a PlanCache."""

    def __init__(
        self,
        cache: PlanCache,
        planner: Planner,
        module: nn.Module,
        sharders: list[ModuleSharder[nn.Module]],
        inputs: bytes,
    ) -> None:
        self._cache, self._folder = cache, cache.folder
        self._planner, self._module, self._sharders = planner, module, sharders
        self._inputs = inputs
        self._left: Topology
        self._key: str

    def load(self, left: Topology) -> KnownPlan | None:
        """Return the plan of exactly this problem, if a file has one that passes all checks.

        `left` is the topology after the storage reservation.
        """
        self._left, self._key = left, key_of(self._inputs, left)
        for file in self._folder.files():
            if file.key != self._key:
                continue
            if (document := self._document(file)) is None:
                continue
            try:
                plan = self._known(document)
            except (LookupError, RuntimeError, ValueError, ShardbenchError) as error:
                self._folder.report(f"{file.path} is not used, since it does not match: {error}")
                continue
            self._folder.touch(file)
            return plan
        return None

    def _known(self, document: PlanDocument) -> KnownPlan:
        options = options_of(document, self._planner._enumerator, self._module, self._sharders)
        names, rating = {option.fqn for option in options}, document.quality["max_rank_ms"]
        if fault := fault_of(options, rating, names, self._left, self._planner._perf_model):
            raise UsageError(f"{fault}.")
        quality = document.quality
        counts = int(quality["proposals"]), int(quality["plans"])
        return KnownPlan(options, rating, quality["bound_ms"], *counts)

    def search_near(
        self, space: SearchSpace, devices: Devices, deadline: Deadline, seed: int
    ) -> tuple[str, Found] | None:
        """Return a plan found from that of a similar problem, and how; or None."""
        names = [option.name for option in space.options]
        if (similar := self._similar(sorted(set(names)))) is None:
            return None
        file, document = similar
        near = NearPlans(space, devices, document, file.path.name, self._cache.near, deadline)
        again = near.used_again(self._left, self._planner._perf_model)
        if again is not None:
            self._folder.touch(file)
            return "near hit", again
        started = near.started_from(self._cache.most_moved, seed)
        return None if started is None else ("start", started)

    def store(self, plan: KnownPlan) -> None:
        """Store the plan of this problem."""
        names = Counter(option.name for option in plan.options)
        [(name, times)] = names.most_common(1)
        if times > 1:
            self._folder.report(
                f"The plan is not kept: table {name} is in {times} modules, and a plan's file "
                "knows tables by name."
            )
            return
        document = PlanDocument(
            format="shardbench-plan",
            version=1,
            world_size=self._left.world_size,
            local_world_size=self._left.local_world_size,
            quality={name: float(figure) for name, figure in figures_of(plan).items()},
            tables=[TableEntry.of(_table(option), option) for option in plan.options],
        )
        self._folder.write(_subject(sorted(names)), self._key, msgspec.json.encode(document))

    def _similar(self, names: list[str]) -> tuple[PlanFile, PlanDocument] | None:
        """Return the plan last used for the same tables, else one with most tables in common."""
        files, subject = self._folder.files(), _subject(names)
        for file in files:
            if file.subject == subject and (document := self._document(file)):
                return file, document
        others = [
            (file, document)
            for file in files[:_MOST_OTHERS]
            if file.subject != subject and (document := self._document(file))
        ]

        def common(document: PlanDocument) -> float:
            tables = {table.name for table in document.tables}
            return len(tables & set(names)) / max(len(tables), len(names))

        best = max(others, key=lambda other: common(other[1]), default=None)
        return best if best and common(best[1]) >= _COMMON else None

    def _document(self, file: PlanFile) -> PlanDocument | None:
        content = self._folder.read(file)
        if content is None:
            return None
        try:
            return parse_plan(file.path, content)
        except UsageError as error:
            self._folder.report(str(error))
            return None


def _table(option: ShardingOption) -> Table:
    rows, dim = map(int, option.tensor.shape)
    pooling = tuple(map(float, option.input_lengths))
    return Table(option.name, rows, dim, pooling, DTYPES[option.tensor.dtype])


def _subject(names: list[str]) -> str:
    """Return a hash of sorted table names."""
    return digest("\n".join(names).encode("utf-8", "surrogatepass"), letters=16)
