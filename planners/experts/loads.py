"""The loads of a workload: drawn from a seed, or read from a recorder's file."""

import csv
import io
from typing import Any

import numpy as np

from harness.contract import UsageError, WorkloadSpec, one_line, read_file, read_json
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
        content = _table(path)
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


def _table(path: str) -> list[list[float]]:
    lines = csv.reader(io.StringIO(read_file(path).decode("utf-8", "replace")))
    try:
        return [[float(load) for load in row] for row in lines if row]
    except (ValueError, csv.Error):
        raise UsageError(f"{path}, line {lines.line_num}: each load must be a number.") from None


def _tensor(path: str) -> Any:
    import torch

    try:
        content = torch.load(io.BytesIO(read_file(path)), weights_only=True, map_location="cpu")
        count = content["logical_count"] if isinstance(content, dict) else content
        return count.double().numpy()
    except UsageError:
        raise
    except Exception as error:  # a damaged pickle raises anything
        raise UsageError(f"{path} holds no tensor 'logical_count' ({one_line(error)}).") from None
