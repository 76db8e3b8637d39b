"""The parts of a planner, to a captured file and back: torchrec's own kinds, and shardbench's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torchrec.distributed.planner import storage_reservations
from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
    SortBy,
)
from torchrec.distributed.planner.perf_models import NoopPerfModel, NoopStorageModel
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    EmbeddingOffloadScaleupProposer,
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.storage_reservations import (
    FixedPercentageStorageReservation,
    HeuristicalStorageReservation,
    InferenceStorageReservation,
)
from torchrec.distributed.planner.types import (
    Partitioner,
    PerfModel,
    Proposer,
    StorageReservation,
    Topology,
)

from planners.embedding.capture.fields import Fields
from planners.embedding.search.same_plan.bin_proposer import BinProposer

_FLAG, _WHOLE, _SHARE, _NUMBER, _SORT = "flag", "whole", "share", "number", "sort"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A class, and for each of its arguments: the attribute that keeps it, and what it may be."""

    make: type[Any]
    settings: Mapping[str, tuple[str, str]]

    def values(self, component: Any) -> dict[str, Any]:
        found = {}
        for name, (attribute, _) in self.settings.items():
            value = getattr(component, attribute)
            found[name] = value.value if isinstance(value, SortBy) else value
        return found

    def read(self, said: Fields) -> dict[str, Any]:
        readers: dict[str, Callable[[str], Any]] = {
            _FLAG: said.flag,
            _WHOLE: said.whole,
            _SHARE: lambda key: said.number(key, 0, 1),
            _NUMBER: said.number,
            _SORT: lambda key: SortBy(said.text(key, [each.value for each in SortBy])),
        }
        return {
            name: said.optional(name, readers[what]) for name, (_, what) in self.settings.items()
        }


_PROPOSERS = {
    "GreedyProposer": _Kind(
        GreedyProposer, {"use_depth": ("_use_depth", _FLAG), "threshold": ("_threshold", _WHOLE)}
    ),
    "UniformProposer": _Kind(UniformProposer, {"use_depth": ("_use_depth", _FLAG)}),
    "GridSearchProposer": _Kind(GridSearchProposer, {"max_proposals": ("_max_proposals", _WHOLE)}),
    "DynamicProgrammingProposer": _Kind(
        DynamicProgrammingProposer, {"hbm_bins_per_device": ("_hbm_bins_per_device", _WHOLE)}
    ),
    "EmbeddingOffloadScaleupProposer": _Kind(
        EmbeddingOffloadScaleupProposer, {"use_depth": ("use_depth", _FLAG)}
    ),
    "BinProposer": _Kind(BinProposer, {"bins_per_device": ("bins_per_device", _WHOLE)}),
}
_PARTITIONERS = {
    "GreedyPerfPartitioner": _Kind(
        GreedyPerfPartitioner,
        {"sort_by": ("_sort_by", _SORT), "balance_modules": ("_balance_modules", _FLAG)},
    ),
    "MemoryBalancedPartitioner": _Kind(
        MemoryBalancedPartitioner,
        {
            "max_search_count": ("_max_search_count", _WHOLE),
            "tolerance": ("_tolerance", _NUMBER),
            "balance_modules": ("_balance_modules", _FLAG),
        },
    ),
}
_PERF_MODELS = {
    "NoopPerfModel": _Kind(NoopPerfModel, {}),
    "NoopStorageModel": _Kind(NoopStorageModel, {}),
}
_RESERVATIONS = {
    "FixedPercentageStorageReservation": _Kind(
        FixedPercentageStorageReservation, {"percentage": ("_percentage", _SHARE)}
    ),
    "HeuristicalStorageReservation": _Kind(
        HeuristicalStorageReservation,
        {
            "percentage": ("_percentage", _SHARE),
            "parameter_multiplier": ("_parameter_multiplier", _NUMBER),
            "dense_tensor_estimate": ("_dense_tensor_estimate", _WHOLE),
        },
    ),
    "InferenceStorageReservation": _Kind(
        InferenceStorageReservation,
        {
            "percentage": ("_percentage", _SHARE),
            "dense_tensor_estimate": ("_dense_tensor_estimate", _WHOLE),
        },
    ),
}
if hasattr(storage_reservations, "FixedAbsoluteStorageReservation"):  # from torchrec 1.7.0 on
    _RESERVATIONS["FixedAbsoluteStorageReservation"] = _Kind(
        storage_reservations.FixedAbsoluteStorageReservation,
        {"hbm_reserved_bytes": ("_hbm_reserved_bytes", _WHOLE)},
    )
_KINDS = {**_PROPOSERS, **_PARTITIONERS, **_PERF_MODELS, **_RESERVATIONS}


@dataclass(frozen=True, slots=True)
class Component:
    """A part of a planner: what its class is called, and its settings where that class is known."""

    kind: str
    settings: Mapping[str, Any] | None
    used: bool = False

    @property
    def obstacle(self) -> str | None:
        """Why it cannot be made again, as a clause; None where it can."""
        if self.settings is None:
            return f"{self.kind} is neither torchrec's nor shardbench's"
        if self.used:
            return f"its {self.kind} had planned before, and keeps what it found"
        return None

    def proposer(self) -> Proposer:
        """Return a new proposer of this kind; there must be no obstacle."""
        proposer: Proposer = self._made(_PROPOSERS)
        return proposer

    def partitioner(self) -> Partitioner:
        """Return a new partitioner of this kind; there must be no obstacle."""
        partitioner: Partitioner = self._made(_PARTITIONERS)
        return partitioner

    def perf_model(self, topology: Topology) -> PerfModel:
        """Return a new perf model of this kind; there must be no obstacle."""
        model: PerfModel = self._made(_PERF_MODELS, topology=topology)
        return model

    def reservation(self) -> StorageReservation:
        """Return a new storage reservation of this kind; there must be no obstacle."""
        reservation: StorageReservation = self._made(_RESERVATIONS)
        return reservation

    def _made(self, kinds: Mapping[str, _Kind], **more: Any) -> Any:
        return kinds[self.kind].make(**(self.settings or {}), **more)


def component_written(component: Any, hashed: bool) -> dict[str, Any]:
    """Return the kind of a part and its settings, which are null for somebody's own class.

    What such a class is called stays out of a file with hashed names.
    """
    name = type(component).__name__
    kind = _KINDS.get(name)
    if kind is None or kind.make is not type(component):
        return {"kind": "a class of one's own" if hashed else name, "settings": None, "used": False}
    return {"kind": name, "settings": kind.values(component), "used": _is_used(component)}


def component_read(said: Fields, group: str) -> Component:
    """Return the part of a planner that a file says; `group` names what it must be one of.

    Raises:
        Malformed: a field is missing or cannot be so.
    """
    groups = {
        "proposer": _PROPOSERS,
        "partitioner": _PARTITIONERS,
        "perf model": _PERF_MODELS,
        "reservation": _RESERVATIONS,
    }
    settings = said.optional("settings", said.inner)
    if settings is None:
        return Component(said.text("kind"), None)
    kind = said.text("kind", groups[group])
    return Component(kind, groups[group][kind].read(settings), said.flag("used"))


def _is_used(component: Any) -> bool:
    """Whether what a proposer kept of an earlier plan has a say in the next one."""
    if isinstance(component, DynamicProgrammingProposer):
        return bool(component._inited)
    if isinstance(component, EmbeddingOffloadScaleupProposer):
        return component.search is not None
    if isinstance(component, GreedyProposer) and component._threshold:
        return bool(component._best_perf_rating != float("inf"))
    return False
