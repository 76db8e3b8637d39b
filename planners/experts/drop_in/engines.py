"""The policies of vLLM and SGLang: their arguments, their results, and faster parts for them."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from inspect import signature
from typing import Any

import numpy as np
import torch
from packaging.version import Version

from harness.contract import SupportedReleases, UsageError, unknown
from planners.experts import kernels
from planners.experts.problem import ExpertsProblem, Placement, Slots

_NAME = "rebalance_experts"
_FLOAT64_SUMS = Version("0.5.12")
"""The first release of SGLang that sums loads as Python's numbers, not as torch's scalars."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine and its policy.

    Attributes:
        releases: the tested releases.
        module: the module of the policy.
        policy: the name of its class, or empty if the module has the functions.
        in_force: whether groups must share a node, and the placement in force; from whether nodes
            can have as many groups each, and from the last argument of a call.
        parts: faster functions with the results of upstream's, by name, for a release.
        result: upstream's return value for the expert of each slot by layer.
    """

    releases: SupportedReleases
    module: str
    policy: str
    in_force: Callable[[bool, Any], tuple[bool, Any]]
    parts: Callable[[str], Mapping[str, Callable[..., Any]]]
    result: Callable[[ExpertsProblem, Slots], Any]

    @property
    def owner(self) -> Any:
        """The class or module with the function `rebalance_experts`; this imports the engine."""
        return self._owner(import_module(self.module))

    def _owner(self, module: Any) -> Any:
        return getattr(module, self.policy) if self.policy else module

    def accelerated(self, release: str) -> Callable[..., Any]:
        """Return the engine's rebalancing with our parts, from a second copy of its module."""
        spec: Any = import_module(self.module).__spec__
        copy = module_from_spec(spec)
        spec.loader.exec_module(copy)
        for name, part in self.parts(release).items():
            setattr(self._owner(copy), name, staticmethod(part))
        rebalance: Callable[..., Any] = getattr(self._owner(copy), _NAME)
        return rebalance

    def problem(self, upstream: Any, *arguments: Any, **named: Any) -> ExpertsProblem:
        """Return the problem of a call; raise ValueError with a reason if it has none."""
        bound = signature(upstream).bind(*arguments, **named)
        bound.apply_defaults()
        weight, slots, groups, nodes, gpus, last = bound.arguments.values()
        if min(slots, nodes, gpus) < 1:
            raise ValueError("the sizes do not fit each other")
        is_grouped, old = self.in_force(bool(groups) and groups % nodes == 0, last)
        if not is_grouped:
            groups = nodes = 1
        loads = weight.float().detach().cpu().numpy().astype(np.float64)
        if loads.ndim != 2:
            raise ValueError("the loads are not by layer and expert")
        if not (np.isfinite(loads).all() and loads.size and loads.min() >= 0):
            raise ValueError("a load is negative or not finite")
        experts = loads.shape[1]
        if slots % gpus or slots < experts or gpus % nodes or experts % groups or groups % nodes:
            raise ValueError("the sizes do not fit each other")
        previous = None if old is None else old.cpu().numpy().astype(np.int64)
        if previous is not None and previous.shape != (len(loads), slots):
            raise ValueError("the placement in force has other sizes")
        return ExpertsProblem(loads, loads, gpus, slots // gpus, groups, nodes, previous=previous)

    def hook(self, decide: Callable[..., Any]) -> Callable[[], None]:
        """Let `decide(upstream, *arguments)` answer rebalancings; return a function that ends it.

        If another program has replaced the function since, ours passes all calls to upstream after
        the end.
        """
        owner, is_on = self.owner, True
        original, upstream = vars(owner)[_NAME], getattr(owner, _NAME)
        function = getattr(upstream, "__func__", upstream)

        @wraps(function)
        def replacement(*arguments: Any, **named: Any) -> Any:
            if self.policy:
                if arguments[0] is not owner:  # a subclass may have parts of its own
                    return function(*arguments, **named)
                arguments = arguments[1:]
            call = partial(decide, upstream) if is_on else upstream
            return call(*arguments, **named)

        hook = classmethod(replacement) if self.policy else replacement
        setattr(owner, _NAME, hook)

        def end() -> None:
            nonlocal is_on
            is_on = False
            if vars(owner)[_NAME] is hook:
                setattr(owner, _NAME, original)

        return end


def find_engine(name: str = "") -> Engine:
    """Return an engine by name, or the only installed one; raise UsageError if there is none."""
    if name and name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    installed = [name] if name else [name for name in ENGINES if find_spec(name)]
    if len(installed) != 1:
        number = "both are" if installed else "none is"
        raise UsageError(f"Name the engine, {' or '.join(ENGINES)}: {number} installed.")
    return ENGINES[installed[0]]


def _packed(order: Any, weight: Any, packs: int) -> tuple[Slots, Slots]:
    """Return the pack of each item, and its place in the pack, with the heaviest items first."""
    place = np.arange(weight.shape[1])
    if packs == len(place):
        return np.tile(place, (len(weight), 1)), np.zeros(weight.shape, dtype=np.int64)
    packed = kernels.pack(np.ascontiguousarray(order), np.ascontiguousarray(weight), packs)
    at = np.empty_like(packed)
    np.put_along_axis(at, packed, np.broadcast_to(place, packed.shape), axis=1)
    size = len(place) // packs
    return at // size, at % size


def _packed_for_vllm(weight: Any, packs: int) -> Any:
    return _packed(np.argsort(-weight, axis=-1), weight.astype(np.float64), packs)


def _replicated_for_vllm(weight: Any, slots: int) -> Any:
    return kernels.replicate(np.ascontiguousarray(weight, dtype=np.float64), slots)[::2]


def _with_slots_kept(slots: Slots, gpus: int, old: Slots) -> Slots:
    """Return the slots with every expert that stays on its GPU in the slot that it had there."""
    new, before = (rows.reshape(len(slots) * gpus, -1) for rows in (slots, old))
    is_placed = np.zeros(new.shape, dtype=bool)
    is_kept = np.zeros(new.shape, dtype=bool)
    for slot in range(new.shape[1]):
        same = (new == before[:, slot, None]) & ~is_placed
        rows = np.flatnonzero(same.any(axis=1))
        is_placed[rows, same[rows].argmax(axis=1)] = True
        is_kept[rows, slot] = True
    kept = before.astype(slots.dtype)
    kept[~is_kept] = new[~is_placed]  # as many in each row, in the order of the slots
    return kept.reshape(slots.shape)


def _result_of_vllm(problem: ExpertsProblem, slots: Slots) -> Any:
    assert problem.previous is not None
    return torch.from_numpy(_with_slots_kept(slots, problem.gpus, problem.previous))


def _in_force_at_sglang() -> Any:
    module = sys.modules.get("sglang.srt.eplb.expert_location")
    metadata = module and module.get_global_expert_location_metadata()
    return metadata.physical_to_logical_map_cpu if metadata else None


def _packed_for_sglang(release: str, weight: torch.Tensor, packs: int) -> Any:
    kind = np.float64 if Version(release) >= _FLOAT64_SUMS else np.float32
    weight = weight.detach()
    order = weight.float().sort(-1, descending=True).indices.numpy()
    return tuple(map(torch.from_numpy, _packed(order, weight.numpy().astype(kind), packs)))


def _result_of_sglang(problem: ExpertsProblem, slots: Slots) -> Any:
    """Return the slots, the slots of each expert padded by -1, and the counts of replicas."""
    counts = Placement(slots).counts(problem.experts)
    is_used = np.arange(counts.max()) < counts[:, :, None]
    padded = np.full(is_used.shape, -1, dtype=np.int64)
    padded[is_used] = np.argsort(slots, axis=1, kind="stable").ravel()
    return torch.from_numpy(slots), torch.from_numpy(padded), torch.from_numpy(counts)


ENGINES: Mapping[str, Engine] = {
    "vllm": Engine(
        SupportedReleases("vllm", ("0.33.0",)),
        "vllm.distributed.eplb.policy.default",
        "DefaultEplbPolicy",
        lambda nests, old: (nests, old),
        lambda release: {
            "balanced_packing": _packed_for_vllm,
            "replicate_experts": _replicated_for_vllm,
            "preserve_intragpu_slots": _with_slots_kept,
        },
        _result_of_vllm,
    ),
    "sglang": Engine(
        SupportedReleases("sglang", ("0.5.5", "0.5.9", "0.5.10", "0.5.12", "0.5.23")),
        "sglang.srt.eplb.eplb_algorithms.deepseek",
        "",
        lambda _, is_grouped: (bool(is_grouped), _in_force_at_sglang()),
        lambda release: {"balanced_packing": partial(_packed_for_sglang, release)},
        _result_of_sglang,
    ),
}
