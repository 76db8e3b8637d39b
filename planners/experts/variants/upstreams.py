"""The balancers of real releases of SGLang and vLLM, in child processes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.contract import Prepared, ask_upstream
from planners.experts.family import FAMILY

if TYPE_CHECKING:
    from planners.experts.problem import ExpertsProblem, Placement

_DRIVER = Path(__file__).parents[1] / "upstream" / "driver.py"
_SGLANG = "sglang-eplb-0.5.9"
_VLLM = "vllm-eplb-0.33.0"


@FAMILY.variant(
    "sglang-0.5.9", source="SGLang 0.5.9", same_as="deepseek", upstream=_SGLANG, requires=("torch",)
)
def sglang(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """SGLang 0.5.9's `deepseek` algorithm, in a child process"""
    return _asked(problem, _SGLANG, "sglang")


@FAMILY.variant(
    "vllm-0.33.0", source="vLLM 0.33.0", same_as="numpy", upstream=_VLLM, requires=("torch",)
)
def vllm(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """vLLM 0.33.0's default policy, in a child process"""
    return _asked(problem, _VLLM, "vllm")


def _asked(problem: "ExpertsProblem", release: str, engine: str) -> "Prepared[Placement]":
    return ask_upstream(
        problem, release, _DRIVER, {"kind": "rebalance", "engine": engine}, _translated
    )


def _translated(
    problem: "ExpertsProblem",
) -> tuple[Mapping[str, Any], Callable[[Mapping[str, Any]], "Placement"]]:
    """Return the request for a problem, and the reader of its answer."""
    import numpy as np

    from planners.experts.problem import Placement

    request = {
        "loads": problem.loads.tolist(),
        "slots": problem.slots,
        "groups": problem.groups if problem.nodes > 1 else 1,
        "nodes": problem.nodes,
        "gpus": problem.gpus,
    }
    return request, lambda answer: Placement(np.array(answer["slots"], dtype=np.int64))
