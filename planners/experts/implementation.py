"""Build the problems of the experts family; check, hash and rate placements."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from operator import methodcaller

import numpy as np

from harness.contract import InfeasibleDecision, Topology, UsageError, WorkloadSpec
from planners.experts.balancing.bounds import layer_bounds
from planners.experts.loads import drawn, recorded
from planners.experts.observer import observe
from planners.experts.problem import (
    ExpertsProblem,
    Placement,
    Slots,
    fetched,
    imbalance,
    over_mean,
)
from planners.experts.published import COMPILED
from planners.experts.workloads import MODELS, ModelParameters, captured, parameters_of, sizes

__all__ = [
    "build",
    "facts",
    "figures",
    "fingerprint",
    "observe",
    "placement_of",
    "quality",
    "validate",
]

_GIB = 2**30

facts = methodcaller("facts")
"""Describe a problem, its size first."""


def build(spec: WorkloadSpec, topology: Topology) -> ExpertsProblem:
    """Return the problem of a workload; raises UsageError if it does not fit the topology.

    The placement in force is the captured one, or vLLM's for the first window. There is none for a
    single window. A captured file has its own sizes, unless it is placed on other GPUs.
    """
    asked = parameters_of(spec)
    expert_bytes = 0
    if isinstance(asked, ModelParameters):
        windows, expert_bytes = drawn(spec, asked), MODELS[spec.name].expert_bytes
    else:
        windows = recorded(spec.name)
    record = captured(spec.name)
    if record and (record.gpus != topology.gpus or asked.redundant or asked.groups > 1):
        record = None
    nodes, per_gpu = sizes(spec, asked, windows.shape[2], topology, record)
    # The last window tests the decision. A single window serves as all three.
    planned = max(len(windows) - 2, 0)
    problem = ExpertsProblem(
        loads=windows[planned],
        following=windows[-1],
        gpus=topology.gpus,
        per_gpu=per_gpu,
        groups=record.groups if record else asked.groups,
        nodes=nodes,
        expert_bytes=expert_bytes,
        budget=asked.budget or None,
    )
    previous = None
    if record:
        previous = _in_force(problem, record.steps[planned].placement, spec.name)
    elif len(windows) >= 3:
        previous = COMPILED.place(replace(problem, loads=windows[0])).slots
    return replace(problem, previous=previous)


def _in_force(problem: ExpertsProblem, rows: list[list[int]] | None, path: str) -> Slots | None:
    """Return a captured placement, None if an engine's first one has groups on several nodes."""
    if rows is None:
        return None
    try:
        return placement_of(problem, rows, path).slots
    except UsageError:
        if problem.nodes == 1:
            raise
        return None


def placement_of(problem: ExpertsProblem, rows: list[list[int]], path: str) -> Placement:
    """Return a file's placement; raises UsageError if it is none for the problem."""
    try:
        made = Placement(np.array(rows, dtype=np.int64))
        validate(problem, made)
    except (ValueError, OverflowError):
        raise UsageError(f"{path} must have as many slots in each layer.") from None
    except InfeasibleDecision as error:
        raise UsageError(f"{path}: {error}") from None
    return made


def fingerprint(decision: Placement) -> str:
    """Return a hash of the expert in every slot."""
    return hashlib.sha256(decision.slots.astype("<i8").tobytes()).hexdigest()[:16]


def validate(problem: ExpertsProblem, decision: Placement) -> None:
    """Raise InfeasibleDecision for empty slots, missing experts and groups on several nodes."""
    slots = decision.slots
    if slots.shape != (problem.layers, problem.slots):
        raise InfeasibleDecision(
            f"A placement must fill {problem.layers} layers of {problem.slots} slots, not "
            f"{' x '.join(map(str, slots.shape))}."
        )
    if slots.min() < 0 or slots.max() >= problem.experts:
        raise InfeasibleDecision(f"Slots must hold experts from 0 to {problem.experts - 1}.")
    counts = decision.counts(problem.experts)
    if not counts.all():
        layer, expert = np.argwhere(counts == 0)[0]
        raise InfeasibleDecision(f"Layer {layer} has no replica of expert {expert}.")
    if problem.nodes > 1:
        _check_groups(problem, slots)


def _check_groups(problem: ExpertsProblem, slots: np.ndarray) -> None:
    groups = (slots // (problem.experts // problem.groups)).reshape(problem.layers, -1)
    by_node = groups.reshape(problem.layers, problem.nodes, -1)
    for group in range(problem.groups):
        nodes = (by_node == group).any(axis=2).sum(axis=1)
        if (nodes > 1).any():
            layer = int(np.argmax(nodes > 1))
            raise InfeasibleDecision(f"Group {group} of layer {layer} is on {nodes[layer]} nodes.")


def figures(problem: ExpertsProblem, known: Mapping[str, float]) -> dict[str, float]:
    """Return the bound on the imbalance, and store it for `quality`."""
    problem.known.update(known)
    if "bound" not in problem.known:
        bounds = layer_bounds(problem)[:, None]
        problem.known["bound"] = float(over_mean(bounds, problem.loads, problem.gpus).mean())
    return problem.known


def quality(problem: ExpertsProblem, decision: Placement) -> Mapping[str, float]:
    """Return balance now and in the next window, the bound, and the fetches.

    GPUs fetch what they do not hold yet, counted once for each GPU.
    """
    now = imbalance(decision, problem.loads, problem.gpus)
    new = fetched(problem, decision)
    held = decision.held(problem.experts, problem.gpus)
    qualities = {
        "imbalance": float(now.mean()),
        "bound": figures(problem, {})["bound"],
        "worst_layer": float(now.max()),
        "next_imbalance": float(imbalance(decision, problem.following, problem.gpus).mean()),
        "wasted": float(problem.slots * problem.layers - held.sum()),
    }
    if problem.previous is not None:
        qualities["fetched"] = float(new.sum(axis=1).mean())
        qualities["fetched_gib"] = float(new.sum(axis=0).max()) * problem.expert_bytes / _GIB
        qualities["least_fetched"] = _least_fetched(problem, decision)
    return qualities


def _least_fetched(problem: ExpertsProblem, decision: Placement) -> float:
    """Return a bound on the fetches of placements with at most this largest load, mean over layers.

    If no GPU may have more than T, no GPU takes more than T of an expert's load w. So w is on at
    least ceil(w / T) GPUs, and those that did not hold the expert fetch it.
    """
    assert problem.previous is not None
    limit = decision.gpu_loads(problem.loads, problem.gpus).max(axis=1, keepdims=True)
    needed = np.ceil(problem.loads / np.where(limit > 0, limit, 1) * (1 - 1e-9))
    holders = Placement(problem.previous).held(problem.experts, problem.gpus).sum(axis=1)
    return float(np.maximum(needed - holders, 0).sum(axis=1).mean())
