"""A cache of plans for `Planner` and for torchrec's dry run: a folder with one file per plan.

1. The plan of exactly this problem is loaded: a `hit`.
2. In mode `best-plan`, the plan of a similar problem is used again if it fits and is near a proven
   bound: a `near hit`.
3. Otherwise the search starts from it and moves little, unless that costs too much: a `start`.
4. Otherwise it is a search as without a folder.
"""

import logging
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import torchrec
from torch import nn
from torchrec.distributed.planner.types import BasicCommsBandwidths, ShardingOption
from torchrec.distributed.types import ModuleSharder
from typing_extensions import override

from harness.contract import Names, ShardbenchError, UsageError
from planners.embedding.best_plan.candidates import all_candidates
from planners.embedding.best_plan.proofs import proofs
from planners.embedding.best_plan.replanning import Replanning
from planners.embedding.best_plan.torchrec_rules import can_be_placed_locally
from planners.embedding.capture.file import CapturedProblem, plain
from planners.embedding.capture.mirrors import device_runs
from planners.embedding.drop_in.checks import fault_of
from planners.embedding.drop_in.compiled_search import CompiledSearch
from planners.embedding.drop_in.planner import Planner
from planners.embedding.plan_cache.folder import PlanFile, PlanFolder, digest
from planners.embedding.plan_files.document import PlanDocument, parse_plan
from planners.embedding.plan_files.table import PlanTable
from planners.embedding.search.outcome import Found, NotFound, placed
from planners.embedding.search.space import Devices, SearchSpace, load_of
from planners.embedding.tables.torchrec_objects import sharded_modules

logger = logging.getLogger("shardbench")

FORMAT = 2
"""Raise it if a change of this project finds other plans for the same inputs."""

# A captured problem without the reservation (the memory that it leaves is in the key instead) and
# without what planning finds.
_INPUTS = ("topology", "batch_size", "sharders", "modules", "constraints", "planner")
_OWN_PACKAGES = ("torchrec", "planners")

_COMPUTED = "_coefficients"  # of estimators, from their settings

_MOST_OTHERS = 4  # files of other tables that are read to find similar ones
_COMMON = 0.9  # least part of the tables that two similar problems share
Options = list[ShardingOption]


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
    def load(self, search_space: Options, enumerator: Any = None) -> None:
        """Propose the plan of exactly this problem if it is known, or else search."""
        left = msgspec.json.encode(device_runs(self._topology))  # after the reservation
        self._key = digest(self._inputs, left, letters=32)
        plan = self._known(search_space)
        if plan and isinstance(self.outcome, Found):
            self._propose_from(self._lead_to([plan], self.outcome.rating))
        else:
            super().load(search_space, enumerator)

    def _known(self, options: Options) -> Options | None:
        """Take the plan of exactly this problem as the outcome, if a file's passes all checks."""
        for file in self._folder.files():
            document = self._document(file) if file.key == self._key else None
            if document is None:
                continue
            try:
                figures, space = document.quality, self.flatten(options)
                chosen = PlanTable.of_document(document).chosen(space)
                if chosen is None:
                    fault: str | None = "it has other tables or options"
                else:
                    counts = int(figures["proposals"]), int(figures["plans"])
                    known = Found(*chosen, figures["max_rank_ms"], *counts, figures["bound_ms"])
                    plan, names = placed(space, known), {option.fqn for option in options}
                    fault = fault_of(self._planner, plan, known.rating, names, self._topology)
            except Exception as error:  # a user's own sharder may raise anything
                fault = str(error).rstrip(".")
            if fault:
                self._folder.report(f"{file.path} is not used, since it is wrong: {fault}.")
                continue
            self.outcome, self.use = known, "hit"
            self._folder.touch(file)
            return plan
        return None

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


class PlanCache:
    """Keeps the plans of planners in a folder, as files of `shardbench plan`.

    Pass it as `Planner(cache=...)`. A plan is stored under a hash of all inputs that decide it:
    tables, constraints, topology, memory after the reservation, batch size, sharders, components
    and their settings, mode, seed, limits and torchrec's release. Planning the same problem again
    loads the plan without a search, after checking it on this problem.

    In mode `best-plan` a similar plan helps, too: one of the same tables by name if a table or the
    machine changed, or else one with nine tenths of the tables in common. If it still fits, and its
    rating is at most the share `near` above the proven bound, it is used again. Otherwise the
    search starts from it, and may move a share `most_moved` of all weights and optimizer state. The
    plan found so is used if its rating is at most the share `near` above that of the best plan
    found without a limit, which is used otherwise.

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
        self._near, self._most_moved = near, most_moved
        self._folder = PlanFolder(Path(folder), int(min(most_gib, 2**20) * 2**30))

    def search(
        self, planner: Planner, module: nn.Module, sharders: list[ModuleSharder[nn.Module]]
    ) -> CachedSearch | None:
        """Return the search for a planner's plan; None, after a warning, if it cannot be kept."""
        try:
            inputs = _problem_inputs(planner, module, sharders)
        except Exception as error:  # a user's own class may raise anything
            self._folder.report(f"The plan is neither taken from the cache nor kept there: {error}")
            return None
        return CachedSearch(planner, inputs, self._folder, self._near, self._most_moved)


def _problem_inputs(
    planner: Planner, module: nn.Module, sharders: list[ModuleSharder[nn.Module]]
) -> bytes:
    """Return all inputs of a problem, except the memory that the storage reservation leaves.

    They depend on torchrec's release and on values, not on the process or the machine. Raises
    ShardbenchError if an input is unknown, such as a user's own estimator.
    """
    modules = sharded_modules(module, sharders)
    inputs = CapturedProblem.of(planner, modules, Names())
    names = Counter(table.name for captured in inputs.modules for table in captured.tables)
    name, times = names.most_common(1)[0]
    if times > 1:
        raise ShardbenchError(f"several modules have a table {name}, and a plan's file only names.")
    if inputs.planner.obstacle:
        raise ShardbenchError(f"{inputs.planner.obstacle}.")
    if planner._enumerator is not planner._own_enumerator:
        raise ShardbenchError("the enumerator is the caller's own.")
    bandwidths = type(planner._topology.comms_bandwidths)
    if bandwidths is not BasicCommsBandwidths:
        raise ShardbenchError(f"{bandwidths.__name__} is not torchrec's.")
    # What the captured inputs lack: tables with weights that are stashed, and the estimators.
    configs = (config for sharded in modules for config, _ in sharded.tables)
    parts = [
        FORMAT,
        getattr(torchrec, "__version__", "a checkout"),
        {name: getattr(inputs, name) for name in _INPUTS},
        [config.name for config in configs if getattr(config, "stash_weights", False)],
        [_described(estimator, planner) for estimator in planner._enumerator._estimators],
    ]
    try:
        return msgspec.json.encode(parts, order="deterministic", enc_hook=plain)
    except TypeError as error:
        raise ShardbenchError(f"an input is unknown: {error}.") from None


def _described(part: Any, planner: Planner) -> list[Any]:
    """Describe an estimator or its configuration by its class and its settings.

    Raises ShardbenchError for a user's own class, and for another topology than the planner's.
    """
    kind, settings = type(part), {}
    if kind.__module__.partition(".")[0] not in _OWN_PACKAGES:
        raise ShardbenchError(f"{kind.__name__} is neither torchrec's nor shardbench's.")
    for name, value in vars(part).items():
        if name in ("_topology", "_constraints"):
            if value is not getattr(planner, name):
                raise ShardbenchError(f"{kind.__name__} has a {name[1:]} of its own.")
        elif name != _COMPUTED:
            is_part = name in ("_config", "_estimator")
            settings[name] = _described(value, planner) if is_part else value
    return [kind.__module__, kind.__qualname__, settings]
