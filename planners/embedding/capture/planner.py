"""The live planner of a captured problem: its search, and the plan it found."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

from torchrec.distributed.planner.planners import EmbeddingShardingPlanner

from planners.embedding.capture.components import Component, component_read
from planners.embedding.capture.fields import Fields
from planners.embedding.drop_in.planner import Mode, Planner

_TORCHRECS, _OURS = "EmbeddingShardingPlanner", "Planner"
_MOST_SECONDS = 10**9


@dataclass(frozen=True, slots=True)
class LivePlanner:
    """The live planner: its class, its parts, and its decision.

    `decision` is the fingerprint of its plan, or says which error it raised. `proposals` is how
    many proposals it tried, None where it raised an error.
    """

    kind: str
    own: dict[str, Any]
    proposers: tuple[Component, ...]
    partitioner: Component
    perf_model: Component
    timeout_seconds: int | None
    loads_a_plan: bool
    callbacks: int
    decision: str
    proposals: int | None

    @property
    def obstacle(self) -> str | None:
        """Why its search cannot be made again, as a clause; None where it can."""
        if self.kind not in (_TORCHRECS, _OURS):
            return f"its planner is {self.kind}, which plans in its own way"
        if self.loads_a_plan:
            return "it loaded its plan and did not search"
        if self.callbacks:
            return "callbacks could change its plan"
        parts = (*self.proposers, self.partitioner, self.perf_model)
        return next((part.obstacle for part in parts if part.obstacle), None)

    def planner(self) -> Callable[..., EmbeddingShardingPlanner]:
        """Return what makes such a planner of the usual arguments."""
        kind = EmbeddingShardingPlanner if self.kind == _TORCHRECS else Planner
        return partial(kind, timeout_seconds=self.timeout_seconds, **self.own)


def live_read(said: Fields, found: Fields | None) -> LivePlanner:
    """Return the live planner of a file, and what it found.

    Raises:
        Malformed: a field is missing or cannot be so.
    """
    kind = said.text("kind")
    own: dict[str, Any] = {}
    if kind == _OURS:
        own = {
            "mode": said.text("mode", get_args(Mode)),
            "search_seconds": said.optional(
                "search_seconds", lambda key: said.number(key, 0.001, _MOST_SECONDS)
            ),
            "seed": said.whole("seed"),
        }
    decision, proposals = "not known", None
    if found is not None and "error" in found.names():
        decision = f"none, {found.text('error')}"
    elif found is not None:
        decision, proposals = found.text("fingerprint"), found.whole("proposals")
    return LivePlanner(
        kind=kind,
        own=own,
        proposers=tuple(
            component_read(each, "proposer") for each in said.each("proposers", "proposer")
        ),
        partitioner=component_read(said.inner("partitioner"), "partitioner"),
        perf_model=component_read(said.inner("perf_model"), "perf model"),
        timeout_seconds=said.optional(
            "timeout_seconds", lambda key: said.whole(key, 1, _MOST_SECONDS)
        ),
        loads_a_plan=said.flag("loads_a_plan"),
        callbacks=said.whole("callbacks"),
        decision=decision,
        proposals=proposals,
    )
