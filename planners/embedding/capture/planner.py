"""Captures a planner: its class, its components with constructor arguments, and its plan.

A component of torchrec or shardbench can be made again; of a user's own class only the name is
kept.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Self, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from torchrec.distributed.planner import partitioners, perf_models, proposers, storage_reservations
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner

from planners.embedding.capture.mirrors import DeviceRuns, Number, Whole
from planners.embedding.drop_in.planner import Mode, Planner
from planners.embedding.same_plan import bin_proposer

_KINDS = {"EmbeddingShardingPlanner": EmbeddingShardingPlanner, "Planner": Planner}
_OWN = ("mode", "search_seconds", "seed")  # arguments that only shardbench's Planner takes
_MOST_SECONDS = 10**9
_UNNAMED = "a class of one's own"

_Seconds = Annotated[float, Meta(ge=0.001, le=_MOST_SECONDS)]
_Share = Annotated[int, Meta(ge=0, le=1)] | Annotated[float, Meta(ge=0, le=1)]


_HOMES = (proposers, bin_proposer, partitioners, perf_models, storage_reservations)
# The constructor arguments of the components that can be made again; an installed torchrec may
# lack some of the classes.
_ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "GreedyProposer": {"use_depth": bool, "threshold": Whole},
    "UniformProposer": {"use_depth": bool},
    "GridSearchProposer": {"max_proposals": Whole},
    "DynamicProgrammingProposer": {"hbm_bins_per_device": Whole},
    "EmbeddingOffloadScaleupProposer": {"use_depth": bool},
    "BinProposer": {"bins_per_device": Whole},
    "BinProposer2D": {"bins_per_device": Whole, "ddr_bins_per_device": Whole},
    "GreedyPerfPartitioner": {"sort_by": partitioners.SortBy, "balance_modules": bool},
    "MemoryBalancedPartitioner": {
        "max_search_count": Whole,
        "tolerance": Number,
        "balance_modules": bool,
    },
    "NoopPerfModel": {},
    "NoopStorageModel": {},
    "FixedPercentageStorageReservation": {"percentage": _Share},
    "HeuristicalStorageReservation": {
        "percentage": _Share,
        "parameter_multiplier": Number,
        "dense_tensor_estimate": Whole,
    },
    "InferenceStorageReservation": {"percentage": _Share, "dense_tensor_estimate": Whole},
    "FixedAbsoluteStorageReservation": {"hbm_reserved_bytes": Whole},
}


def _component(name: str) -> type[Any] | None:
    """Return the class of this name in `_ARGUMENTS`; None if there is none here."""
    homes = [home for home in _HOMES if name in _ARGUMENTS and hasattr(home, name)]
    return getattr(homes[0], name) if homes else None


class Component(Struct):
    """A component of a planner; `settings` are its constructor arguments, None if unknown."""

    kind: str
    settings: dict[str, Any] | None
    used: bool  # it has state from an earlier plan that affects the next plan

    def __post_init__(self) -> None:
        if self.settings is None:
            return
        if _component(self.kind) is None:
            raise ValueError(f"kind must be one of {', '.join(filter(_component, _ARGUMENTS))}")
        try:
            self._arguments()
        except msgspec.ValidationError as error:
            raise ValueError(f"{self.kind}: {error}") from None

    @classmethod
    def of(cls, component: Any, hashed: bool) -> Self:
        """Capture a component.

        For a user's own class `settings` is None. With `hashed` its name is left out as well.
        """
        name = type(component).__name__
        if _component(name) is not type(component):
            return cls(_UNNAMED if hashed else name, None, False)
        values = vars(component)  # an argument is stored as an attribute, `name` or `_name`
        settings = {key: values.get(f"_{key}", values.get(key)) for key in _ARGUMENTS[name]}
        return cls(name, msgspec.to_builtins(settings), _is_used(component))

    @property
    def obstacle(self) -> str | None:
        """The reason why the component cannot be created again, as a clause, or None."""
        if self.settings is None:
            return f"{self.kind} is neither torchrec's nor shardbench's"
        return f"its {self.kind} had planned before, and keeps what it found" if self.used else None

    def make(self, **more: Any) -> Any:
        """Return a new component with the captured settings; `obstacle` must be None.

        A perf model needs the argument `topology`.
        """
        kind: Any = _component(self.kind)
        return kind(**self._arguments(), **more)

    def _arguments(self) -> dict[str, Any]:
        """Return the settings as constructor arguments; raises msgspec's ValidationError."""
        fields = [(key, kind | None) for key, kind in _ARGUMENTS[self.kind].items()]
        arguments = msgspec.convert(self.settings, msgspec.defstruct(self.kind, fields))
        return msgspec.structs.asdict(arguments)


class CapturedReservation(Component):
    """A captured storage reservation, and the memory that it left on each device.

    `refused` is the first line of the error if the reservation failed, else None. It is empty if
    the file must not contain the error's text.
    """

    left: DeviceRuns | None = None
    refused: str | None = None


def _is_used(component: Any) -> bool:
    """Return whether a proposer has state from an earlier plan that affects the next plan."""
    if isinstance(component, proposers.DynamicProgrammingProposer):
        return bool(component._inited)
    if isinstance(component, proposers.EmbeddingOffloadScaleupProposer):
        return component.search is not None
    if isinstance(component, proposers.GreedyProposer) and component._threshold:
        return bool(component._best_perf_rating != float("inf"))
    return False


class CapturedPlanner(Struct, frozen=True, kw_only=True):
    """A planner's class and components; only shardbench's Planner has a mode, limit and seed."""

    kind: str
    mode: Mode | UnsetType = UNSET
    search_seconds: _Seconds | UnsetType | None = UNSET
    seed: Whole | UnsetType = UNSET
    proposers: list[Component]
    partitioner: Component
    perf_model: Component
    timeout_seconds: Annotated[int, Meta(ge=1, le=_MOST_SECONDS)] | None
    loads_a_plan: bool
    callbacks: Whole

    def __post_init__(self) -> None:
        if UNSET in self.own.values():
            raise ValueError(f"a Planner must have {', '.join(_OWN)}")

    @classmethod
    def of(cls, planner: EmbeddingShardingPlanner, hashed: bool) -> Self:
        """Capture a planner; with `hashed` the name of a user's own class is left out."""
        kind, own = "EmbeddingShardingPlanner", {}
        if type(planner) is Planner:
            kind, own = "Planner", {name: getattr(planner, f"_{name}") for name in _OWN}
        elif cast(Any, type(planner)).plan is not cast(Any, EmbeddingShardingPlanner).plan:
            kind = _UNNAMED if hashed else type(planner).__name__
        return cls(
            kind=kind,
            **own,
            proposers=[Component.of(part, hashed) for part in planner._proposers],
            partitioner=Component.of(planner._partitioner, hashed),
            perf_model=Component.of(planner._perf_model, hashed),
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


class FoundPlan(Struct, frozen=True):
    """The captured result: a plan's fingerprint, or the class of an error."""

    fingerprint: str | UnsetType = UNSET
    error: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.fingerprint is UNSET and self.error is UNSET:
            raise ValueError("it must have a fingerprint or an error")
