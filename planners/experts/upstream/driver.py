"""Run one release's balancer, in a child process that has its files on the import path.

`harness.contract.ask_upstream` sends the requests.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from planners.instruments import timed

_FOLDER = Path(next(path for path in sys.path if Path(path).name.split("-")[-2:-1] == ["eplb"]))
# The files import each other as a package; its own __init__ imports the whole engine.
_package = ModuleType("balancer")
_package.__path__ = [str(_FOLDER)]
sys.modules["balancer"] = _package

Rebalance = Callable[..., torch.Tensor]


def _answered(request: dict[str, Any], rebalance: Rebalance) -> dict[str, Any]:
    """Return the expert of each slot by layer, and the seconds that the balancer took.

    `sizes` are the numbers of slots, groups, nodes and GPUs.
    """
    torch.set_num_threads(1)
    weight = torch.tensor(request["loads"], dtype=torch.float64)
    rebalance(weight[:1], *request["sizes"])  # the first call imports
    placed, measured = timed(lambda: rebalance(weight, *request["sizes"]))
    return {"slots": placed.tolist(), **measured}


def _vllm(request: dict[str, Any]) -> dict[str, Any]:
    return _answered(request, import_module("balancer.default").DefaultEplbPolicy.rebalance_experts)


def _sglang(request: dict[str, Any]) -> dict[str, Any]:
    rebalance = import_module("balancer.deepseek").rebalance_experts
    is_hierarchical = request["sizes"][2] > 1
    return _answered(request, lambda *given: rebalance(*given, is_hierarchical)[0])


HANDLERS = {"vllm": _vllm, "sglang": _sglang}
