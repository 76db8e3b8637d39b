"""The loads of a workload: drawn from a seed, or read from a recorder's file."""

import csv
import io
from typing import Any

import numpy as np

from harness.contract import UsageError, WorkloadSpec, read_file, read_json
from planners.experts.problem import Loads
from planners.experts.workloads import MODELS, ModelParameters, captured

_TOKENS = 2**23
_MOST = 2**26
_WINDOWS = 3


def drawn(spec: WorkloadSpec, asked: ModelParameters) -> Loads:
    """Return windows x layers x experts: lognormal loads of a layer, whole numbers of tokens.

    The logarithm of each load is a random walk with steps of standard deviation `drift`. The last
    window is the one that follows the window to plan for.
    """
    model = MODELS[spec.name]
    draw = np.random.default_rng(asked.seed)
    shape = (asked.layers or model.layers, model.experts)
    logs = draw.normal(0.0, asked.skew, shape)
    windows = []
    for _ in range(asked.windows + 1):
        shares = np.exp(logs)
        windows.append(np.rint(shares / shares.sum(axis=1, keepdims=True) * _TOKENS))
        logs = logs + draw.normal(0.0, asked.drift, shape)
    return np.array(windows)


def recorded(path: str) -> Loads:
    """Return windows x layers x experts of a file; steps of a recorder are summed to three windows.

    Raises UsageError if it holds no loads.
    """
    content: Any
    if record := captured(path):
        content = [step.loads for step in record.steps]
    elif path.endswith(".csv"):
        content = _rows(path)
    elif path.endswith(".pt"):
        content = _tensor(path)
    elif "logical_count" not in (content := read_json(path)):
        raise UsageError(f"{path} holds no 'logical_count', and no captured rebalancings.")
    else:
        content = content["logical_count"]
    try:
        loads = np.array(content, dtype=np.float64)
    except (TypeError, ValueError):
        loads = np.empty(0)
    if loads.ndim == 2:
        loads = loads[None]
    if loads.ndim != 3 or not 0 < loads.size <= _MOST:
        raise UsageError(
            f"{path} must hold loads of layers x experts, as many in each, or a series of these."
        )
    if len(wrong := np.argwhere(~((loads >= 0) & (loads <= 2.0**53)))):
        step, layer, expert = wrong[0]
        raise UsageError(
            f"{path} must hold loads from 0 to {2**53:,}, not {loads[step, layer, expert]:g} for "
            f"expert {expert} of layer {layer}."
        )
    if len(loads) > _WINDOWS and not record:
        return np.array([part.sum(axis=0) for part in np.array_split(loads, _WINDOWS)])
    return loads


def _rows(path: str) -> list[list[float]]:
    rows: list[list[float]] = []
    lines = csv.reader(io.StringIO(read_file(path).decode("utf-8", "replace")))
    try:
        for row in filter(None, lines):
            rows.append(list(map(float, row)))
            if len(row) != len(rows[0]):
                few = f"it has {len(row)} loads, and the first one has {len(rows[0])}"
                raise UsageError(f"{path}, line {lines.line_num}: {few}.")
    except (ValueError, csv.Error):
        raise UsageError(f"{path}, line {lines.line_num}: each load must be a number.") from None
    return rows


def _tensor(path: str) -> Any:
    import torch

    try:
        held = torch.load(io.BytesIO(read_file(path)), weights_only=True, map_location="cpu")
        if isinstance(held, dict) and "expert_load_window" in held:
            return _of_vllm(held["expert_load_window"], held["physical_to_logical_map"])
        count = held["logical_count"] if isinstance(held, dict) else held
        return count.double().numpy()
    except UsageError:
        raise
    except Exception as error:  # a damaged pickle raises anything
        raise UsageError(
            f"{path} holds no tensor 'logical_count', and no 'expert_load_window' with a "
            f"'physical_to_logical_map' that fits ({type(error).__name__})."
        ) from None


def _of_vllm(window: Any, owner: Any) -> Any:
    """Return layers x experts from steps x layers x slots, a ring buffer without a first step."""
    slots = window.sum(dim=0).double().masked_fill(owner < 0, 0)
    loads = slots.new_zeros(len(slots), int(owner.max()) + 1)
    return loads.scatter_add_(1, owner.long().clamp(min=0), slots).numpy()
