"""The balancers of real releases of SGLang and vLLM, in child processes."""

from pathlib import Path
from typing import TYPE_CHECKING

from harness.contract import Measured, Prepared, Upstream
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
    import numpy as np

    from planners.experts.problem import Placement

    upstream = Upstream(release, _DRIVER)
    request = {
        "kind": "rebalance",
        "engine": engine,
        "loads": problem.loads.tolist(),
        "slots": problem.slots,
        "groups": problem.groups if problem.nodes > 1 else 1,
        "nodes": problem.nodes,
        "gpus": problem.gpus,
    }

    def run() -> Measured[Placement]:
        found = upstream.ask(request)
        slots = np.array(found["slots"], dtype=np.int64)
        return Measured(Placement(slots), found["wall_s"], found["cpu_s"])

    return Prepared(run, close=upstream.close)
