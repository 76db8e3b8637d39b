"""The policies of vLLM and SGLang: their arguments, their results, and faster parts for them."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from packaging.version import Version

from harness.contract import SupportedReleases, UsageError, unknown
from planners.experts.balancing.kernels import pack, replicate
from planners.experts.problem import ExpertsProblem, Placement, Slots

_FLOAT64_SUMS = Version("0.5.12")
"""The first release of SGLang that sums loads as Python's numbers, not as torch's scalars."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine and its policy.

    Attributes:
        releases: the tested releases.
        home: the module of the policy, with the name of its class if it has one.
        asked: the problem of a call, from its arguments; it raises any error for wrong ones.
        parts: faster functions with the results of upstream's, by name, for a release.
        result: upstream's return value for the expert of each slot by layer.
        example: the arguments of a small call.
    """

    releases: SupportedReleases
    home: str
    asked: Callable[..., ExpertsProblem]
    parts: Callable[[str], Mapping[str, Any]]
    result: Callable[[ExpertsProblem, Slots], Any]
    example: tuple[Any, ...]

    @property
    def owner(self) -> Any:
        """The class or module with the function `rebalance_experts`; this imports the engine."""
        module, _, name = self.home.partition(":")
        found = import_module(module)
        return getattr(found, name) if name else found

    @property
    def release(self) -> str:
        """The installed release."""
        return str(import_module(self.releases.library).__version__)


def find_engine(name: str = "") -> Engine:
    """Return an engine by name, or the only installed one; raise UsageError if there is none."""
    if name:
        if name not in ENGINES:
            raise unknown("engine", name, ENGINES)
        return ENGINES[name]
    installed = [name for name in ENGINES if name in sys.modules or find_spec(name)]
    if len(installed) != 1:
        found = "both are" if installed else "none is"
        raise UsageError(f"Name the engine, {' or '.join(ENGINES)}: {found} installed.")
    return ENGINES[installed[0]]


def _problem(
    weight: torch.Tensor, slots: int, groups: int, nodes: int, gpus: int, old: torch.Tensor | None
) -> ExpertsProblem:
    """Return the problem of a call; raise ValueError for sizes that do not fit."""
    loads = weight.float().cpu().numpy().astype(np.float64)
    if not (np.isfinite(loads).all() and loads.size and loads.min() >= 0):
        raise ValueError("a load is negative or not finite")
    experts = loads.shape[1]
    if slots % gpus or slots < experts or gpus % nodes or experts % groups or groups % nodes:
        raise ValueError("the sizes do not fit each other")
    previous = None if old is None else old.cpu().numpy().astype(np.int64)
    if previous is not None and previous.shape != (len(loads), slots):
        raise ValueError("the placement in force has other sizes")
    return ExpertsProblem(loads, loads, gpus, slots // gpus, groups, nodes, previous=previous)


def _placed_in_packs(order: Any, weight: Any, packs: int) -> tuple[Slots, Slots]:
    """Return the pack of each item, and its place in the pack, with the heaviest items first."""
    place = np.arange(weight.shape[1])
    if packs == len(place):
        return np.tile(place, (len(weight), 1)), np.zeros(weight.shape, dtype=np.int64)
    packed = pack(np.ascontiguousarray(order), np.ascontiguousarray(weight), packs)
    size = len(place) // packs
    at = np.empty_like(packed)
    np.put_along_axis(at, packed, np.broadcast_to(place, packed.shape), axis=1)
    return at // size, at % size


def _with_slots_kept(slots: Slots, gpus: int, old: Slots) -> Slots:
    """Return the slots with every expert that stays on its GPU in the slot that it had there."""
    new, before = (held.reshape(len(slots) * gpus, -1) for held in (slots, old))
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


def _asked_of_vllm(
    weight: torch.Tensor,
    num_replicas: int,
    num_groups: int,
    num_nodes: int,
    num_ranks: int,
    old_global_expert_indices: torch.Tensor | None = None,
) -> ExpertsProblem:
    sizes = (num_groups, num_nodes) if num_groups % num_nodes == 0 else (1, 1)
    return _problem(weight, num_replicas, *sizes, num_ranks, old_global_expert_indices)


def _parts_of_vllm(_: str) -> Mapping[str, Any]:
    def balanced_packing(_: Any, weight: Any, num_packs: int) -> Any:
        order = np.argsort(-weight, axis=-1)
        return _placed_in_packs(order, weight.astype(np.float64), num_packs)

    def replicate_experts(_: Any, weight: Any, num_phy: int) -> Any:
        owner, _, counts = replicate(np.ascontiguousarray(weight), num_phy)
        return owner, counts

    def preserve_intragpu_slots(_: Any, phy2log: Any, num_ranks: int, old_phy2log: Any) -> Any:
        return _with_slots_kept(phy2log, num_ranks, old_phy2log)

    made = (balanced_packing, replicate_experts, preserve_intragpu_slots)
    return {part.__name__: classmethod(part) for part in made}


def _result_of_vllm(problem: ExpertsProblem, slots: Slots) -> Any:
    assert problem.previous is not None
    return torch.from_numpy(_with_slots_kept(slots, problem.gpus, problem.previous))


def _asked_of_sglang(
    weight: torch.Tensor,
    num_replicas: int,
    num_groups: int | None,
    num_nodes: int,
    num_gpus: int,
    enable_hierarchical: bool,
) -> ExpertsProblem:
    groups, nodes = (num_groups or 0, num_nodes) if enable_hierarchical else (1, 1)
    return _problem(weight, num_replicas, groups, nodes, num_gpus, _in_force_at_sglang())


def _in_force_at_sglang() -> torch.Tensor | None:
    """Return the expert of each slot by layer, None before the engine has placed any."""
    module = sys.modules.get("sglang.srt.eplb.expert_location")
    found = module and module.get_global_expert_location_metadata()
    return found.physical_to_logical_map_cpu if found else None


def _parts_of_sglang(release: str) -> Mapping[str, Any]:
    kind = np.float64 if Version(release) >= _FLOAT64_SUMS else np.float32

    def balanced_packing(weight: torch.Tensor, num_packs: int) -> Any:
        order = weight.float().sort(-1, descending=True).indices.numpy()
        placed = _placed_in_packs(order, weight.numpy().astype(kind), num_packs)
        return tuple(map(torch.from_numpy, placed))

    return {"balanced_packing": balanced_packing}


def _result_of_sglang(problem: ExpertsProblem, slots: Slots) -> Any:
    """Return the slots, the slots of each expert padded by -1, and the counts of replicas."""
    counts = Placement(slots).counts(problem.experts)
    order = np.argsort(slots, axis=1, kind="stable")
    held = np.arange(counts.max()) < counts[:, :, None]
    padded = np.full(held.shape, -1, dtype=np.int64)
    padded[held] = order.ravel()
    return torch.from_numpy(slots), torch.from_numpy(padded), torch.from_numpy(counts)


_EXAMPLE = (torch.ones(1, 4), 4, 1, 1, 2)

ENGINES: Mapping[str, Engine] = {
    "vllm": Engine(
        SupportedReleases("vllm", ("0.33.0",)),
        "vllm.distributed.eplb.policy.default:DefaultEplbPolicy",
        _asked_of_vllm,
        _parts_of_vllm,
        _result_of_vllm,
        _EXAMPLE,
    ),
    "sglang": Engine(
        SupportedReleases("sglang", ("0.5.5", "0.5.9", "0.5.10", "0.5.12", "0.5.23")),
        "sglang.srt.eplb.eplb_algorithms.deepseek",
        _asked_of_sglang,
        _parts_of_sglang,
        _result_of_sglang,
        (*_EXAMPLE, False),
    ),
}


def hooked(engine: Engine, decide: Callable[..., Any]) -> Callable[[], None]:
    """Let `decide(upstream, *arguments)` answer each rebalancing; return a function that ends it.

    If another program replaced the function since, the end leaves it, and calls go to upstream.
    """
    owner = engine.owner
    original = vars(owner)["rebalance_experts"]
    is_method = isinstance(original, classmethod)
    answering = decide

    def rebalance_experts(*arguments: Any, **named: Any) -> Any:
        if is_method:
            upstream: Any = partial(original.__func__, arguments[0])
            return answering(upstream, *arguments[1:], **named)
        return answering(original, *arguments, **named)

    replacement = classmethod(rebalance_experts) if is_method else rebalance_experts
    owner.rebalance_experts = replacement

    def end() -> None:
        nonlocal answering
        answering = _by_upstream
        if vars(owner)["rebalance_experts"] is replacement:
            owner.rebalance_experts = original

    return end


def _by_upstream(upstream: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return upstream(*arguments, **named)
