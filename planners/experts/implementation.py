"""Build the problems of the experts family; check, hash, rate and observe placements."""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from harness.contract import InfeasibleDecision, Recorder, Topology, UsageError, WorkloadSpec
from planners.experts import kernels
from planners.experts.balancing import certified, few_moves, two_slots
from planners.experts.loads import drawn, recorded
from planners.experts.problem import ExpertsProblem, Placement, fetched, imbalance, over_mean
from planners.experts.published import COMPILED, Balancer
from planners.experts.workloads import MODELS, ModelParameters, captured, parameters_of, sizes
from planners.instruments import replaced

_GIB = 2**30

facts = ExpertsProblem.facts
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
    if record is None:
        if len(windows) < 3:
            return problem
        return replace(problem, previous=COMPILED.place(replace(problem, loads=windows[0])).slots)
    rows = record.steps[planned].placement
    if rows is None:
        return problem
    try:
        return replace(problem, previous=placement_of(problem, rows, spec.name).slots)
    except UsageError:
        if nodes == 1:
            raise
        return problem  # an engine's first placement has groups on several nodes


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
    """Raise InfeasibleDecision for empty slots, missing experts and too many groups on a node."""
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
    if problem.nodes == 1:
        return
    # If no node has more than its number of groups, each group is on one node.
    by_node = (problem.layers, problem.nodes, -1)
    groups = np.sort((slots // (problem.experts // problem.groups)).reshape(by_node), axis=2)
    on_node = 1 + (np.diff(groups, axis=2) > 0).sum(axis=2)
    most = problem.groups // problem.nodes
    if (on_node > most).any():
        layer, node = np.argwhere(on_node > most)[0]
        raise InfeasibleDecision(
            f"Node {node} of layer {layer} has {on_node[layer, node]} groups, not {most}."
        )


def figures(problem: ExpertsProblem, known: Mapping[str, float]) -> dict[str, float]:
    """Return the bound on the imbalance, and store it for `quality`."""
    problem.known.update(known)
    if "bound" not in problem.known:
        bounds = certified.layer_bounds(problem)[:, None]
        problem.known["bound"] = float(over_mean(bounds, problem.loads, problem.gpus).mean())
    return problem.known


def quality(problem: ExpertsProblem, decision: Placement) -> Mapping[str, float]:
    """Return balance now and in the next window, the bound, and the fetches.

    GPUs fetch what they do not hold yet, counted once for each GPU.
    """
    now = imbalance(decision, problem.loads, problem.gpus)
    used = decision.on_gpus(problem.experts, problem.gpus).sum()
    qualities = {
        "imbalance": float(now.mean()),
        "bound": figures(problem, {})["bound"],
        "worst_layer": float(now.max()),
        "next_imbalance": float(imbalance(decision, problem.following, problem.gpus).mean()),
        "wasted": float(problem.slots * problem.layers - used),
    }
    if problem.previous is not None:
        new = fetched(problem, decision)
        qualities["fetched"] = float(new.sum(axis=1).mean())
        qualities["fetched_gib"] = float(new.sum(axis=0).max()) * problem.expert_bytes / _GIB
        # If no GPU may have more than T, no GPU takes more than T of an expert's load w. So w is on
        # at least ceil(w / T) GPUs, and those that did not have the expert fetch it.
        limit = decision.gpu_loads(problem.loads, problem.gpus).max(axis=1, keepdims=True)
        needed = np.ceil(problem.loads / np.where(limit > 0, limit, 1) * (1 - 1e-9))
        before = Placement(problem.previous).on_gpus(problem.experts, problem.gpus).sum(axis=1)
        least = np.maximum(needed - before, 0).sum(axis=1)
        qualities["least_fetched"] = float(least.mean())
    return qualities


def observe(recorder: Recorder) -> AbstractContextManager[None]:
    """Record the phases and counters of every placement that is made in the `with` block."""

    def step(
        owner: Any, name: str, phase: str, work: Callable[[Any], dict[str, int]] = lambda _: {}
    ) -> tuple[Any, str, Any]:
        called = getattr(owner, name)

        def counted(*arguments: Any) -> Any:
            outer = recorder.current
            with recorder.phase(phase):
                result = called(*arguments)
            if outer != phase:  # a compiled step inside the same step counts once
                recorder.counters.update(work(result))
            return result

        return owner, name, counted

    def packed(result: Any) -> dict[str, int]:
        return {"replicas_packed": result.size}

    def improved(result: tuple[float, int, int, int]) -> dict[str, int]:
        _, tried, exchanges, replications = result
        return {"steps_tried": tried, "exchanges": exchanges, "replications": replications}

    def fitted(result: tuple[bool, int]) -> dict[str, int]:
        return {"limits_tried": 1, "replications": result[1]}

    return replaced(
        (
            step(Balancer, "replicate", "replicate"),
            step(kernels, "replicate", "replicate"),
            step(Balancer, "pack", "pack", packed),
            step(kernels, "pack", "pack", packed),
            step(kernels, "improve", "improve", improved),
            step(two_slots, "fit_counts", "improve", fitted),
            step(few_moves, "paired_near", "assign"),
            step(few_moves, "renamed", "assign"),
            step(certified, "bounds_of", "bound"),
        )
    )
