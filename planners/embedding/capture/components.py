"""Captures a planner's components, from torchrec or shardbench, with constructor arguments."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import msgspec
from msgspec import Meta, Struct
from torchrec.distributed.planner import partitioners, perf_models, proposers, storage_reservations

from planners.embedding.capture.limits import Number, Whole
from planners.embedding.capture.topology import DeviceRuns
from planners.embedding.same_plan import bin_proposer

_Share = Annotated[int, Meta(ge=0, le=1)] | Annotated[float, Meta(ge=0, le=1)]

_Known = dict[str, tuple[type[Any], type[Struct]]]


def _known(module: Any, **arguments: Mapping[str, Any]) -> _Known:
    """Map class names to the class and a Struct type for its captured constructor arguments.

    Classes that the installed torchrec lacks are omitted.
    """
    return {
        name: (
            getattr(module, name),
            msgspec.defstruct(name, [(key, kind | None) for key, kind in kinds.items()]),
        )
        for name, kinds in arguments.items()
        if hasattr(module, name)
    }


class Component(Struct):
    """A component of a planner; `settings` are its constructor arguments, None if unknown."""

    known: ClassVar[_Known]

    kind: str
    settings: dict[str, Any] | None
    used: bool  # it has state from an earlier plan that affects the next plan

    def __post_init__(self) -> None:
        if self.settings is not None:
            if self.kind not in self.known:
                raise ValueError(f"kind must be one of {', '.join(self.known)}")
            try:
                msgspec.convert(self.settings, self.known[self.kind][1])
            except msgspec.ValidationError as error:
                raise ValueError(f"{self.kind}: {error}") from None

    @classmethod
    def of(cls, component: Any, hashed: bool, **more: Any) -> Self:
        """Capture a component.

        For a user's own class `settings` is None. With `hashed` its name is left out as well.
        """
        name = type(component).__name__
        made, arguments = cls.known.get(name, (None, None))
        if arguments is None or made is not type(component):
            return cls("a class of one's own" if hashed else name, None, False, **more)
        held = vars(component)  # an argument is stored as an attribute, `name` or `_name`
        settings = {key: held.get(f"_{key}", held.get(key)) for key in arguments.__struct_fields__}
        return cls(name, msgspec.to_builtins(settings), _is_used(component), **more)

    @property
    def obstacle(self) -> str | None:
        """The reason why the component cannot be created again, as a clause, or None."""
        if self.settings is None:
            return f"{self.kind} is neither torchrec's nor shardbench's"
        if self.used:
            return f"its {self.kind} had planned before, and keeps what it found"
        return None

    def make(self, **more: Any) -> Any:
        """Return a new component with the captured settings; `obstacle` must be None."""
        made, arguments = self.known[self.kind]
        return made(**msgspec.structs.asdict(msgspec.convert(self.settings, arguments)), **more)


class CapturedProposer(Component):
    """A captured proposer."""

    known = _known(
        proposers,
        GreedyProposer={"use_depth": bool, "threshold": Whole},
        UniformProposer={"use_depth": bool},
        GridSearchProposer={"max_proposals": Whole},
        DynamicProgrammingProposer={"hbm_bins_per_device": Whole},
        EmbeddingOffloadScaleupProposer={"use_depth": bool},
    ) | _known(
        bin_proposer,
        BinProposer={"bins_per_device": Whole},
        BinProposer2D={"bins_per_device": Whole, "ddr_bins_per_device": Whole},
    )


class CapturedPartitioner(Component):
    """A captured partitioner."""

    known = _known(
        partitioners,
        GreedyPerfPartitioner={"sort_by": partitioners.SortBy, "balance_modules": bool},
        MemoryBalancedPartitioner={
            "max_search_count": Whole,
            "tolerance": Number,
            "balance_modules": bool,
        },
    )


class CapturedPerfModel(Component):
    """A captured perf model; `make` needs the argument `topology`."""

    known = _known(perf_models, NoopPerfModel={}, NoopStorageModel={})


class CapturedReservation(Component):
    """A captured storage reservation, and the memory that it left on each device.

    `refused` is the first line of the error if the reservation failed, else None. It is empty if
    the file must not contain the error's text.
    """

    known = _known(
        storage_reservations,
        FixedPercentageStorageReservation={"percentage": _Share},
        HeuristicalStorageReservation={
            "percentage": _Share,
            "parameter_multiplier": Number,
            "dense_tensor_estimate": Whole,
        },
        InferenceStorageReservation={"percentage": _Share, "dense_tensor_estimate": Whole},
        FixedAbsoluteStorageReservation={"hbm_reserved_bytes": Whole},
    )

    left: DeviceRuns | None
    refused: str | None


def _is_used(component: Any) -> bool:
    """Return whether a proposer has state from an earlier plan that affects the next plan."""
    if isinstance(component, proposers.DynamicProgrammingProposer):
        return bool(component._inited)
    if isinstance(component, proposers.EmbeddingOffloadScaleupProposer):
        return component.search is not None
    if isinstance(component, proposers.GreedyProposer) and component._threshold:
        return bool(component._best_perf_rating != float("inf"))
    return False
