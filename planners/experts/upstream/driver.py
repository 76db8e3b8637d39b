"""Run one release's balancer, in a child process that has its files on the import path.

`harness.contract.Upstream` sends the requests.
"""

import sys
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


def _vllm(weight: torch.Tensor, request: dict[str, Any]) -> torch.Tensor:
    policy = import_module("balancer.default").DefaultEplbPolicy
    sizes = (request[name] for name in ("slots", "groups", "nodes", "gpus"))
    placed: torch.Tensor = policy.rebalance_experts(weight, *sizes)
    return placed


def _sglang(weight: torch.Tensor, request: dict[str, Any]) -> torch.Tensor:
    sizes = (request[name] for name in ("slots", "groups", "nodes", "gpus"))
    rebalance = import_module("balancer.deepseek").rebalance_experts
    placed: torch.Tensor = rebalance(weight, *sizes, request["nodes"] > 1)[0]
    return placed


_CALLS = {"vllm": _vllm, "sglang": _sglang}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the expert of each slot by layer, and the seconds that the balancer took."""
    torch.set_num_threads(1)
    weight = torch.tensor(request["loads"], dtype=torch.float64)
    call = _CALLS[request["engine"]]
    call(weight[:1], request)  # the first call imports
    placed, measured = timed(lambda: call(weight, request))
    return {"slots": placed.tolist(), **measured}


HANDLERS = {"rebalance": answer}
