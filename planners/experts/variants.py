"""Variants: the published balancers, ours, and real releases. Modules are imported at first use."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.contract import Claim, NotApplicable, Prepared, ask_upstream
from planners.experts.family import FAMILY

if TYPE_CHECKING:
    from planners.experts.problem import ExpertsProblem, Placement

_DRIVER = Path(__file__).parent / "upstream" / "driver.py"
_SGLANG, _VLLM = "sglang-eplb-0.5.9", "vllm-eplb-0.33.0"


def _balancer(name: str, problem: "ExpertsProblem") -> "Prepared[Placement]":
    from planners.experts.published import BALANCERS

    return BALANCERS[name].prepared(problem)


@FAMILY.variant("deepseek", reference=True, source="deepseek-ai/EPLB", requires=("torch",))
def deepseek(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """Greedy replication, then each replica onto the lightest GPU, scalar by scalar in torch"""
    return _balancer("deepseek", problem)


@FAMILY.variant(
    "heap",
    same_as="deepseek",
    source="sgl-project/sglang#14540",
    claim=Claim(22.8, 15.8, "ms", "as published"),
    requires=("torch",),
)
def heap(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """As deepseek, with the GPUs of each layer in a heap"""
    return _balancer("heap", problem)


@FAMILY.variant(
    "numpy-pack",
    source="vllm-project/vllm#28369",
    claim=Claim(80, 10, "ms", "DeepSeek-V2-Lite on 8 GPUs"),
)
def numpy_pack(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """As deepseek, with the packing in NumPy and its sums in float32"""
    return _balancer("numpy-pack", problem)


@FAMILY.variant("numpy", source="vllm-project/vllm#30697")
def numpy(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """vLLM 0.33: replication and packing in NumPy, layer by layer, with float64 sums"""
    return _balancer("numpy", problem)


@FAMILY.variant("batched", same_as="numpy", source="vllm-project/vllm#52556")
def batched(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """As numpy, with each replica of all layers packed at once"""
    return _balancer("batched", problem)


@FAMILY.variant(
    "zigzag",
    source="ADRS, blog of October 2025",
    claim=Claim(540, 3.7, "ms", "as published"),
)
def zigzag(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """Replicas sorted by load and dealt to the GPUs in turns, each turn in the reverse order"""
    return _balancer("zigzag", problem)


@FAMILY.variant(
    "flashlb",
    source="vllm-project/vllm-ascend#6477",
    claim=Claim(232, 205, "tokens", "largest load of its example, as published"),
)
def flashlb(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """Search the replicas of four groups of experts in turn, each rated by a whole placement"""
    from planners.experts.published import flashlb

    if problem.nodes > 1:
        raise NotApplicable("It knows no groups of experts.")
    return Prepared(lambda: flashlb(problem))


@FAMILY.variant("compiled", same_as="numpy", source="shardbench")
def compiled(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """As numpy, with compiled loops"""
    return _balancer("compiled", problem)


@FAMILY.variant("compiled-deepseek", same_as="deepseek", source="shardbench", requires=("torch",))
def compiled_deepseek(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """As deepseek, with compiled loops"""
    return _balancer("compiled-deepseek", problem)


@FAMILY.variant("certified", source="shardbench")
def certified(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """The best balance: greedy, then exchanges and better counts until a proven bound is near"""
    from planners.experts.balancing.certified import certified

    return Prepared(lambda: certified(problem))


@FAMILY.variant("few-moves", source="shardbench")
def few_moves(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """Few fetches from the placement in force, within 2 % of the bound or within the budget"""
    from planners.experts.balancing.few_moves import few_moves

    return Prepared(lambda: few_moves(problem))


@FAMILY.variant(
    "sglang-0.5.9", source="SGLang 0.5.9", same_as="deepseek", upstream=_SGLANG, requires=("torch",)
)
def sglang(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """SGLang 0.5.9's `deepseek` algorithm, in a child process"""
    return ask_upstream(problem, _SGLANG, _DRIVER, {"kind": "sglang"}, _translated)


@FAMILY.variant(
    "vllm-0.33.0", source="vLLM 0.33.0", same_as="numpy", upstream=_VLLM, requires=("torch",)
)
def vllm(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """vLLM 0.33.0's default policy, in a child process"""
    return ask_upstream(problem, _VLLM, _DRIVER, {"kind": "vllm"}, _translated)


def _translated(
    problem: "ExpertsProblem",
) -> tuple[Mapping[str, Any], Callable[[Mapping[str, Any]], "Placement"]]:
    """Return the request for a problem, and the reader of its answer."""
    import numpy as np

    from planners.experts.problem import Placement

    groups = problem.groups if problem.nodes > 1 else 1
    sizes = (problem.slots, groups, problem.nodes, problem.gpus)
    request = {"loads": problem.loads.tolist(), "sizes": sizes}
    return request, lambda answer: Placement(np.array(answer["slots"], dtype=np.int64))
