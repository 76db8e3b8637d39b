"""Captures a planner that ran: its class, its components, and the plan that it found."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NamedTuple, cast

from msgspec import UNSET, Meta, Struct, UnsetType
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner

from planners.embedding.capture.components import (
    CapturedPartitioner,
    CapturedPerfModel,
    CapturedProposer,
)
from planners.embedding.capture.limits import MOST_SECONDS, Whole
from planners.embedding.drop_in.planner import Mode, Planner

_KINDS = {"EmbeddingShardingPlanner": EmbeddingShardingPlanner, "Planner": Planner}
_OWN = ("mode", "search_seconds", "seed")
_Seconds = Annotated[float, Meta(ge=0.001, le=MOST_SECONDS)]


class FoundPlan(Struct, frozen=True):
    """The captured result: a plan's fingerprint and the numbers of plans tried, or an error."""

    fingerprint: str | UnsetType = UNSET
    proposals: Whole | UnsetType = UNSET
    plans: Whole | UnsetType = UNSET
    error: str | UnsetType = UNSET
    text: str | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        if self.error is UNSET and UNSET in (self.fingerprint, self.proposals):
            raise ValueError("it must have a fingerprint and proposals, or an error")

    @property
    def decision(self) -> str:
        """The plan's fingerprint, or 'none, ' and the class name of the error."""
        return str(self.fingerprint) if self.error is UNSET else f"none, {self.error}"


class CapturedPlanner(Struct, frozen=True, kw_only=True):
    """A planner's class and components; only shardbench's Planner has a mode, limit and seed."""

    kind: str
    mode: Mode | UnsetType = UNSET
    search_seconds: _Seconds | UnsetType | None = UNSET
    seed: Whole | UnsetType = UNSET
    proposers: list[CapturedProposer]
    partitioner: CapturedPartitioner
    perf_model: CapturedPerfModel
    timeout_seconds: Annotated[int, Meta(ge=1, le=MOST_SECONDS)] | None
    loads_a_plan: bool
    callbacks: Whole

    def __post_init__(self) -> None:
        if UNSET in self.own.values():
            raise ValueError(f"a Planner must have {', '.join(_OWN)}")

    @classmethod
    def of(cls, planner: EmbeddingShardingPlanner, hashed: bool) -> "CapturedPlanner":
        """Capture a planner; with `hashed` the name of a user's own class is left out."""
        kind = "EmbeddingShardingPlanner"
        own: dict[str, Any] = {}
        if type(planner) is Planner:
            kind = "Planner"
            own = {name: getattr(planner, f"_{name}") for name in _OWN}
        elif cast(Any, type(planner)).plan is not cast(Any, EmbeddingShardingPlanner).plan:
            kind = "a class of one's own" if hashed else type(planner).__name__
        return cls(
            kind=kind,
            **own,
            proposers=[CapturedProposer.of(part, hashed) for part in planner._proposers],
            partitioner=CapturedPartitioner.of(planner._partitioner, hashed),
            perf_model=CapturedPerfModel.of(planner._perf_model, hashed),
            timeout_seconds=planner._timeout_seconds,
            loads_a_plan=planner.plan_loader is not None,
            callbacks=len(planner._callbacks),
        )

    @property
    def own(self) -> dict[str, Any]:
        """The arguments that only shardbench's Planner takes; empty for other planners."""
        return {name: getattr(self, name) for name in _OWN} if self.kind == "Planner" else {}

    @property
    def obstacle(self) -> str | None:
        """The reason why the planner's search cannot be repeated, as a clause, or None."""
        if self.kind not in _KINDS:
            return f"its planner is {self.kind}, which plans in its own way"
        if self.loads_a_plan:
            return "it loaded its plan and did not search"
        if self.callbacks:
            return "callbacks could change its plan"
        parts = (*self.proposers, self.partitioner, self.perf_model)
        return next((part.obstacle for part in parts if part.obstacle), None)

    def make(
        self, kind: type[EmbeddingShardingPlanner] | None = None
    ) -> Callable[..., EmbeddingShardingPlanner]:
        """Return a factory of such planners, or of planners of another class with these settings.

        The factory takes EmbeddingShardingPlanner's arguments.
        """
        made: Callable[..., EmbeddingShardingPlanner] = kind or _KINDS[self.kind]
        return partial(made, timeout_seconds=self.timeout_seconds, **self.own)


class LivePlanner(NamedTuple):
    """The planner that was captured, and its decision: a plan's fingerprint or an error's name."""

    planner: CapturedPlanner
    decision: str
