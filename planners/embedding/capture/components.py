"""Captures the parts of a planner: classes of torchrec and of shardbench, with their settings."""

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
    """Return classes of a module by name, each with a struct of its captured arguments.

    Classes that the installed release lacks are left out.
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
    """A part of a planner: the name of its class, and its settings if that class is known."""

    known: ClassVar[_Known]

    kind: str
    settings: dict[str, Any] | None
    used: bool  # it keeps state of an earlier plan that affects the next one

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

        A user's own class has no settings, and in a file with hashed names no name.
        """
        name = type(component).__name__
        made, arguments = cls.known.get(name, (None, None))
        if arguments is None or made is not type(component):
            return cls("a class of one's own" if hashed else name, None, False, **more)
        held = vars(component)  # an argument is an attribute, perhaps after an underscore
        settings = {key: held.get(f"_{key}", held.get(key)) for key in arguments.__struct_fields__}
        return cls(name, msgspec.to_builtins(settings), _is_used(component), **more)

    @property
    def obstacle(self) -> str | None:
        """The reason why it cannot be made again, as a clause, or None."""
        if self.settings is None:
            return f"{self.kind} is neither torchrec's nor shardbench's"
        if self.used:
            return f"its {self.kind} had planned before, and keeps what it found"
        return None

    def make(self, **more: Any) -> Any:
        """Return a new component; there must be no obstacle."""
        made, arguments = self.known[self.kind]
        return made(**msgspec.structs.asdict(msgspec.convert(self.settings, arguments)), **more)


class CapturedProposer(Component):
    """A proposer."""

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
    """A partitioner."""

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
    """A perf model; `make` needs a `topology`."""

    known = _known(perf_models, NoopPerfModel={}, NoopStorageModel={})


class CapturedReservation(Component):
    """A storage reservation, and the memory that it left on each device.

    `refused` is the reason why it refused, if it did; empty if the file must not hold the reason.
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
    """Return whether a proposer keeps state of an earlier plan that affects the next one."""
    if isinstance(component, proposers.DynamicProgrammingProposer):
        return bool(component._inited)
    if isinstance(component, proposers.EmbeddingOffloadScaleupProposer):
        return component.search is not None
    if isinstance(component, proposers.GreedyProposer) and component._threshold:
        return bool(component._best_perf_rating != float("inf"))
    return False
