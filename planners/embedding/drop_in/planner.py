"""A drop-in EmbeddingShardingPlanner with a compiled search."""

import logging
import math
import time
import warnings
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Collection,
    Dict,
    List,
    Literal,
    Optional,
    Union,
    cast,
    get_args,
)

import torchrec
from torch import nn
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import (
    Enumerator,
    ParameterConstraints,
    Partitioner,
    PerfModel,
    PlanLoader,
    PlannerError,
    PlannerErrorType,
    Proposer,
    ShardingOption,
    Stats,
    StorageReservation,
    Topology,
)
from torchrec.distributed.types import ModuleSharder, ShardingPlan
from typing_extensions import override

from harness.contract import Machine, SupportedReleases
from planners.instruments import collection_paused, replaced

if TYPE_CHECKING:
    from planners.embedding.plan_files.table import PlanTable

# The search is imported where it is used, since it may not load on an untested release. Remedies
# are imported by name, since they build problems, and those may hold planners of this class.
_REMEDIES = "planners.embedding.remedies.remedies"
_ROUNDING = 1e-9

logger = logging.getLogger("shardbench")

Mode = Literal["same-plan", "best-plan"]

RELEASES = SupportedReleases("torchrec", ("1.6.1", "1.7.0", "1.8.0", "1.9.0", "1.9.1", "1.9.2"))


class DistrustedSearch(UserWarning):
    """Warns that a planner's compiled search failed, and that torchrec's own replaces it."""


class Planner(EmbeddingShardingPlanner):
    """Plans like torchrec's EmbeddingShardingPlanner, with the same arguments, in less time.

    Mode `same-plan` finds torchrec's plan to the last bit, with the same counts and errors; each
    call ignores state that proposers have from earlier calls. Mode `best-plan` searches for the
    best plan by torchrec's perf model, and falls back to `same-plan` only if it finds none. Its
    proposers may be of any kind, since only EmbeddingOffloadScaleupProposer is used.

    TorchRec's own search is used for what is not compiled, such as a user's own partitioner, after
    one message; for good after one warning, if the compiled search fails or torchrec rates its plan
    differently; and on a release that is not in `RELEASES`, after one warning.

    A time limit for the best plan covers all of `plan` except the enumeration of options. When the
    time is up, the best plan so far is returned; if there is none, the error is torchrec's for an
    exceeded `timeout_seconds`.

    Args:
        mode: the kind of plan, `same-plan` or `best-plan`.
        search_seconds: time limit for the best plan; default `timeout_seconds`. Without both, the
            search stops after about five seconds of CPU, counted as work, so that a seed always
            gives the same plan.
        seed: seed of the search for the best plan.
        check: whether to check each plan with torchrec's perf model and estimators, in mode
            `same-plan` also with its partitioner; that no other proposal is better is not checked.
        any_release: whether to search on untested releases, too.
        previous: the current plan, as a ShardingPlan or a file of `shardbench plan`; the search
            then looks for the best plan that moves little of it.
        move_budget: GiB of weights and optimizer state that may move; unlimited by default. If no
            plan within the budget is found, the plan that moves least is returned, and a warning
            is logged unless `debug` is off. `moved_gib` is the amount that the last plan moves.
        lost_ranks: ranks of the previous plan that no longer exist, if they are not the last ones;
            later ranks are renumbered to close the gaps.
        cache: a `PlanCache` of plans that were found before, to load them or to begin with them.
            After `plan`, `from_cache` is how the plan was found: a `hit`, a `near hit`, from a
            `start`, or "" without use of the cache. Plans of torchrec's own search are not stored.
        remedy_seconds: time limit of the search for remedies if mode `best-plan` finds no plan; 0
            for no search.
        machine: the calibrated machine whose estimates judge plans in mode `best-plan`: the name of
            one that shardbench includes, a file of `shardbench calibrate`, or "none" for torchrec's
            own estimates. By default it is the one with this process's GPU, if it is included and
            no enumerator is given. If the search is torchrec's own, a warning says that the machine
            is not used.

    After `plan`, `max_rank_ms` is the plan's rating, `machine` the machine that it is by, or None
    for torchrec's own estimates, and `torchrec_ms` the rating by those. After a search for the best
    plan, `bound_ms` is a proven lower bound in ms for all plans of these options: infinite if it is
    proven that no plan fits, and 0 if nothing was proven. `gap` is the part by which the rating is
    above it. The logger `shardbench` gets rating and gap in one line (level INFO). If no plan was
    found, `verdict` and a note on the error give the proof, or the attempts, and another note lists
    changes that would be enough, such as more HBM or a smaller batch.

    Raises ValueError for an unknown mode, time or budget; UsageError for an unknown machine, for a
    file that is not a machine or a plan, and for a plan of other tables. `plan` raises PlannerError
    if a search near the previous plan is not compiled.
    """

    machine: Machine | None = None
    moved_gib: float | None = None
    bound_ms = 0.0
    verdict = ""
    from_cache = ""
    _clock = staticmethod(time.monotonic)

    def __init__(
        self,
        topology: Optional[Topology] = None,
        batch_size: Optional[int] = None,
        enumerator: Optional[Enumerator] = None,
        storage_reservation: Optional[StorageReservation] = None,
        proposer: Optional[Union[Proposer, List[Proposer]]] = None,
        partitioner: Optional[Partitioner] = None,
        performance_model: Optional[PerfModel] = None,
        stats: Optional[Union[Stats, List[Stats]]] = None,
        constraints: Optional[Dict[str, ParameterConstraints]] = None,
        debug: bool = True,
        callbacks: Optional[List[Callable[[List[ShardingOption]], List[ShardingOption]]]] = None,
        timeout_seconds: Optional[int] = None,
        plan_loader: Optional[PlanLoader] = None,
        *,
        mode: Mode = "same-plan",
        search_seconds: float | None = None,
        seed: int = 0,
        check: bool = False,
        any_release: bool = False,
        previous: "ShardingPlan | str | Path | PlanTable | None" = None,
        move_budget: float | None = None,
        lost_ranks: Collection[int] = (),
        cache: Any = None,  # a PlanCache, whose module imports this one
        remedy_seconds: float = 5.0,
        machine: Machine | str | Path | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"The mode must be 'same-plan' or 'best-plan', not {mode!r}.")
        if search_seconds is not None and not 0 < search_seconds < math.inf:
            raise ValueError(f"search_seconds must be a time above 0 s, not {search_seconds!r}.")
        if previous is not None and mode != "best-plan":
            raise ValueError("A previous plan needs mode 'best-plan'.")
        if previous is None and (move_budget is not None or len(lost_ranks)):
            raise ValueError("move_budget and lost_ranks need a previous plan.")
        if previous is not None and cache is not None:
            raise ValueError("A plan near a previous one is not taken from a cache; give one only.")
        if move_budget is not None and not move_budget >= 0:
            raise ValueError(f"move_budget must be at least 0 GiB, not {move_budget!r}.")
        judges = machine not in (None, "none")
        if judges and (mode != "best-plan" or enumerator is not None):
            raise ValueError("A machine needs mode 'best-plan', and no enumerator.")
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
        self._limit = (search_seconds if mode == "best-plan" else None) or timeout_seconds or None
        self._seed = seed
        self._cache = cache
        self._remedy_seconds = remedy_seconds
        self._check = check
        self._move_budget = math.inf if move_budget is None else move_budget * 2**30
        self._previous = None
        if previous is not None:
            from planners.embedding.plan_files.table import PlanTable

            self._previous = PlanTable.of(previous).without(lost_ranks)
        release = getattr(torchrec, "__version__", "a checkout")
        self._supported = RELEASES.allow("Planner", release, any_release=any_release)
        self._warned = not self._supported  # which a warning has said already
        self._fault: str | None = None
        self._own_enumerator: Any = None
        obstacle = self._obstacle()
        if obstacle is None and not enumerator:
            self._enumerator = self._own_enumerator = self._make_enumerator(machine)
        elif judges:
            logger.warning(f"Plans are not judged by the machine, since {obstacle}.")

    def _make_enumerator(self, machine: Machine | str | Path | None) -> Any:
        """Return an enumerator with the estimates of a machine, which is remembered, if any."""
        from planners.embedding.estimates import machines
        from planners.embedding.search.enumeration import DistinctShardEnumerator

        problem = self._topology, self._batch_size, self._constraints
        if machine is None and self._mode == "best-plan":
            self.machine = machines.machine_at_hand()
        elif machine not in (None, "none"):
            self.machine = machines.find_machine(machine)
        if self.machine is None:
            return DistinctShardEnumerator(*problem)
        from planners.embedding.estimates.estimator import judging_enumerator

        return judging_enumerator(self.machine, *problem)

    @override
    def plan(self, module: nn.Module, sharders: List[ModuleSharder[nn.Module]]) -> ShardingPlan:
        """Return a plan for the module; raises PlannerError as torchrec does."""
        self._sharders = sharders
        self._best_plan = None  # torchrec keeps the last plan if it finds no other
        self.from_cache, self.bound_ms, self.verdict = "", 0.0, ""
        plan = self._plan(module, sharders)
        if self._previous is not None:
            moved = self._previous.bytes_moved(self._best_plan or (), self._topology.world_size)
            self.moved_gib = moved / 2**30
            if moved > self._move_budget and self._debug:
                budget = self._move_budget / 2**30
                logger.warning(
                    f"No plan was found that moves at most {budget:.4g} GiB; this one moves least, "
                    f"{self.moved_gib:.4g} GiB."
                )
        if (self.gap or 0.0) < -_ROUNDING:
            self.bound_ms = 0.0  # a plan with larger caches, of which the bound knows nothing
        if self._best_plan and self._mode == "best-plan" and logger.isEnabledFor(logging.INFO):
            gap = self.gap
            above = "without a bound" if gap is None else f"{100 * gap:.1f} % above the bound"
            ruler, advice = "by torchrec's formula", ""
            if self.machine:
                ruler = f"by machine {self.machine.name} ({self.torchrec_ms:.4g} ms {ruler})"
            elif self._own_enumerator:
                from planners.embedding.estimates.machines import TO_CALIBRATE

                advice = f"; {TO_CALIBRATE}, and machine= takes the file"
            logger.info("%.4g ms %s, %s%s", self.max_rank_ms, ruler, above, advice)
        return plan

    @property
    def max_rank_ms(self) -> float | None:
        """The rating of the last plan in ms, by the perf model; None without a plan."""
        return float(self._perf_model.rate(self._best_plan)) if self._best_plan else None

    @property
    def torchrec_ms(self) -> float | None:
        """The rating of the last plan in ms by torchrec's own estimates; None without a plan."""
        if not self._best_plan or self.machine is None:
            return self.max_rank_ms
        from planners.embedding.estimates.estimator import estimated_again, torchrec_estimators

        theirs = torchrec_estimators(self._topology, self._constraints)
        return float(
            self._perf_model.rate(estimated_again(self._best_plan, theirs, self._sharders))
        )

    @property
    def gap(self) -> float | None:
        """The part by which the last plan rates above `bound_ms`; None without plan or bound."""
        rating = self.max_rank_ms
        return rating / self.bound_ms - 1 if rating is not None and self.bound_ms else None

    def get_search_space(self) -> Optional[List[ShardingOption]]:
        """Return all options of the last problem; after a `hit` they are enumerated only now."""
        hit, enumerator = self.from_cache == "hit", cast(EmbeddingEnumerator, self._enumerator)
        options = enumerator.last_stored_search_space if hit else self._search_space
        return cast(Optional[List[ShardingOption]], options)

    def _plan(self, module: nn.Module, sharders: List[ModuleSharder[nn.Module]]) -> ShardingPlan:
        """Plan with the compiled search, else, without a previous plan, with torchrec's own."""
        obstacle = self._fault or self._obstacle()
        if obstacle is None:
            from planners.embedding.drop_in.compiled_search import NotCompiled, WrongPlan

            try:
                with collection_paused() if self._cache else nullcontext():
                    return self._plan_compiled(module, sharders)
            except NotCompiled as error:
                obstacle = str(error)
                if isinstance(error, WrongPlan):
                    self._fault = obstacle
        if self._previous is not None:  # which torchrec's own search would ignore
            raise PlannerError(
                error_type=PlannerErrorType.OTHER,
                message=f"No plan can be searched for near the previous one, since {obstacle}.",
            )
        self._say(obstacle)
        if self._enumerator is self._own_enumerator:
            self._enumerator = self._own_enumerator.torchrecs()  # whose options torchrec may change
        return super().plan(module, sharders)

    def _obstacle(self) -> str | None:
        """Return why the compiled search cannot be used, as a clause, or None."""
        if not self._supported:
            return "it was not tested with this release of torchrec"
        from planners.embedding.drop_in.checks import obstacle_of_planner

        return obstacle_of_planner(self)

    def _say(self, obstacle: str) -> None:
        """Log once why torchrec's own search is used; warn instead if the compiled one failed."""
        if self._warned:
            return
        self._warned = True
        without = ", without the cache" if self._cache else ""
        text = f"The search is torchrec's own{without}, since {obstacle}."
        if self._fault is None:
            logger.warning(text)
        else:
            warnings.warn(text, DistrustedSearch, stacklevel=3)

    def _plan_compiled(
        self, module: nn.Module, sharders: List[ModuleSharder[nn.Module]]
    ) -> ShardingPlan:
        """Run torchrec's `plan` with the compiled search in place of proposers and partitioner."""
        from planners.embedding.drop_in.compiled_search import CompiledSearch
        from planners.embedding.drop_in.method_log import unlogged

        cached = self._cache.search(self, module, sharders) if self._cache else None
        search = cached or CompiledSearch(self)
        try:
            with replaced(search.stand_ins()):
                plan = unlogged(EmbeddingShardingPlanner.plan)(self, module, sharders)
        except PlannerError as error:
            self.bound_ms, self.verdict = search.outcome.bound, search.outcome.verdict
            if self.verdict:
                error.add_note(f"{self.verdict[0].upper()}{self.verdict[1:]}.")
                if self._enumerator is self._own_enumerator and self._remedy_seconds:
                    remedies_note = import_module(_REMEDIES).remedies_note
                    if note := remedies_note(self, module, sharders, self._remedy_seconds):
                        error.add_note(note)
            raise
        self.bound_ms = search.outcome.bound
        if cached:
            cached.store(self._best_plan or [])
            self.from_cache = cached.use
        return cast(ShardingPlan, plan)
