"""Declare the experts family: its qualities, workloads and abilities.

This module must not import NumPy or torch, so that listing variants is quick.
"""

from typing import TYPE_CHECKING

from harness.contract import (
    Abilities,
    Counter,
    Family,
    Pair,
    Quality,
    Statement,
    Study,
    WorkloadSpec,
    read_file,
)
from planners.experts.workloads import WORKLOADS, brings, is_file, parameters_of

if TYPE_CHECKING:
    from planners.experts.problem import ExpertsProblem, Placement

_LADDER = (
    *("deepseek", "heap", "numpy-pack", "numpy", "batched", "zigzag", "flashlb"),
    *("compiled", "compiled-deepseek", "certified"),
)
_MOVING = ("numpy", "flashlb", "certified", "few-moves")
_GLOBAL = "deepseek-v3/dgx_h100:32"
_FEW_LAYERS = "deepseek-v3[layers=8]/dgx_h100:32"
_FOR_VLLM = "deepseek-v3[seed=1]/dgx_h100:32"
_GROUPED = "deepseek-v3[groups=8]/dgx_h100:32"

# Goals: what, the problem, the variant before and after, the measure, and its upper limit.
_GOALS = (
    ("best balance in 50 ms", _FOR_VLLM, "", "certified", "seconds", 0.05),
    ("a tenth of vLLM's fetches", _GLOBAL, "numpy", "few-moves", "fetched", 0.1),
    ("best balance within 2 %", _GLOBAL, "certified", "few-moves", "imbalance", 1.02),
)
# Goals of speed: what, the problem with the variants before and after, and the least factor.
_FASTER = (
    ("vLLM 0.33's decision", (_FOR_VLLM, "numpy", "compiled"), 15),
    ("DeepSeek's decision", (_GLOBAL, "deepseek", "compiled-deepseek"), 200),
)


def label(spec: WorkloadSpec) -> WorkloadSpec:
    """Return the name in results, with a hash for a file.

    Raises UsageError for unknown workloads, and for files without loads.
    """
    parameters_of(spec)
    if not is_file(spec):
        return spec
    if not spec.name.endswith(".pt"):  # reading a tensor imports torch
        from planners.experts.loads import recorded

        recorded(spec.name)
    return spec.of_file(read_file(spec.name))


FAMILY: Family["ExpertsProblem", "Placement"] = Family(
    name="experts",
    summary="replicas of a model's experts on GPUs: EPLB of DeepSeek, SGLang and vLLM",
    implementation="planners.experts.implementation",
    label=label,
    brings=brings,
    qualities=(
        Quality("imbalance", "", "lower", "largest over mean load of a GPU, mean over layers"),
        Quality("bound", "", "higher", "least imbalance that is possible", bounds="imbalance"),
        Quality("worst_layer", "", "lower", "largest over mean load of a GPU in the worst layer"),
        Quality("next_imbalance", "", "lower", "imbalance on the loads of the next window"),
        Quality("fetched", "", "lower", "experts that are fetched, mean over layers"),
        Quality("fetched_gib", "GiB", "lower", "what the busiest GPU fetches over all layers"),
        Quality("least_fetched", "", "higher", "fetches that this balance needs", bounds="fetched"),
        Quality("wasted", "", "lower", "second replicas of an expert on one GPU, over all layers"),
    ),
    counters=(
        Counter("replicas_packed", "replicas that were put on a GPU by packing"),
        Counter("steps_tried", "exchanges and replications that were rated"),
        Counter("exchanges", "exchanges of two replicas that were made"),
        Counter("replications", "spare replicas that were replaced by another expert's"),
        Counter("limits_tried", "limits for which numbers of replicas were searched"),
    ),
    phases=("replicate", "pack", "improve", "assign", "bound", "other"),
    workloads=lambda: WORKLOADS,
    requires=("numba",),
    preload=("torch",),
    benchmarks=("deepseek-v3[layers=4]/dgx_h100:32",),
    abilities=Abilities(
        planning="planners.experts.planning:PLANNING",
        explain="planners.experts.planning:explain",
        figures="planners.experts.implementation:figures",
    ),
    studies=(
        Study(_FEW_LAYERS, (*_LADDER, "few-moves"), "8 of 58 layers"),
        Study(
            _FOR_VLLM,
            ("numpy", "batched", "compiled", "certified", "few-moves"),
            "vLLM's policy",
            against="numpy",
        ),
        Study(_GLOBAL, (*_LADDER, "few-moves"), "global policy", large=True),
        Study(_GROUPED, (*_LADDER, "few-moves"), "groups share a node", large=True),
        Study("deepseek-v3/dgx_h100:144", _LADDER, "two slots per GPU", large=True),
        Study(
            "deepseek-v3[budget=32]/dgx_h100:32",
            _MOVING,
            "at most 32 fetches in a layer",
            large=True,
        ),
    ),
    statements=(
        Statement(
            "headline",
            "vLLM, experts",
            _FOR_VLLM,
            "numpy",
            "compiled",
            claim="vLLM #28369, experts",
            before_is="a stand-in: the method of vLLM 0.33, written anew",
            next_step="`shardbench.accelerate_experts()` in each worker",
        ),
        Statement("headline", "vLLM, experts", _FOR_VLLM, "numpy", "certified", "imbalance"),
        Statement(
            "claim",
            "vLLM #28369, experts",
            "deepseek-v2-lite/dgx_h100:8",
            "deepseek",
            "numpy-pack",
            quick=Pair(_FEW_LAYERS, "deepseek", "numpy-pack"),
            remark="Published as about 80 and 10 ms. Both variants are ours, and their placements "
            "differ where sums are rounded differently.",
        ),
        *(
            Statement("goal", name, problem, before, after, measure, at_most=limit)
            for name, problem, before, after, measure, limit in _GOALS
        ),
        *(
            Statement("goal", f"{name} at least {least} times as fast", *of, at_least=least)
            for name, of, least in _FASTER
        ),
    ),
    place=50,
)
