"""The published balancers, with source and claim. Their modules are imported at first use."""

from typing import TYPE_CHECKING

from harness.contract import Claim, NotApplicable, Prepared
from planners.experts.family import FAMILY

if TYPE_CHECKING:
    from planners.experts.problem import ExpertsProblem, Placement


@FAMILY.variant("deepseek", reference=True, source="deepseek-ai/EPLB", requires=("torch",))
def deepseek(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """Greedy replication, then each replica onto the lightest GPU, scalar by scalar in torch"""
    from planners.experts.published.deepseek import SCALARS, one_thread

    return Prepared(lambda: SCALARS.place(problem), installed=one_thread)


@FAMILY.variant(
    "heap",
    same_as="deepseek",
    source="sgl-project/sglang#14540",
    claim=Claim(22.8, 15.8, "ms", "as published"),
    requires=("torch",),
)
def heap(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """As deepseek, with the GPUs of each layer in a heap"""
    from planners.experts.published.deepseek import HEAP, one_thread

    return Prepared(lambda: HEAP.place(problem), installed=one_thread)


@FAMILY.variant(
    "numpy-pack",
    source="vllm-project/vllm#28369",
    claim=Claim(80, 10, "ms", "DeepSeek-V2-Lite on 8 GPUs"),
)
def numpy_pack(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """As deepseek, with the packing in NumPy and its sums in float32"""
    from planners.experts.published.vllm import NUMPY_PACK

    return Prepared(lambda: NUMPY_PACK.place(problem))


@FAMILY.variant("numpy", source="vllm-project/vllm#30697")
def numpy(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """vLLM 0.33: replication and packing in NumPy, layer by layer, with float64 sums"""
    from planners.experts.published.vllm import NUMPY

    return Prepared(lambda: NUMPY.place(problem))


@FAMILY.variant("batched", same_as="numpy", source="vllm-project/vllm#52556")
def batched(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """As numpy, with each replica of all layers packed at once"""
    from planners.experts.published.vllm import BATCHED

    return Prepared(lambda: BATCHED.place(problem))


@FAMILY.variant(
    "zigzag",
    source="ADRS, blog of October 2025",
    claim=Claim(540, 3.7, "ms", "as published"),
)
def zigzag(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """Replicas sorted by load and dealt to the GPUs in turns, each turn in the reverse order"""
    from planners.experts.published.vllm import ZIGZAG

    return Prepared(lambda: ZIGZAG.place(problem))


@FAMILY.variant(
    "swift",
    source="vllm-project/vllm#24069",
    claim=Claim(35.2, 4.4, "ms", "time of transfers, ideal, as published"),
)
def swift(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """Exchange replicas of the heaviest and lightest GPU of a layer; counts stay as they are"""
    import numpy as np

    from planners.experts.problem import Placement
    from planners.experts.published import swift as policy

    previous = problem.previous
    if previous is None:
        raise NotApplicable("It starts from a placement in force, and there is none.")
    if problem.nodes > 1:
        raise NotApplicable("It knows no groups of experts.")

    def run() -> Placement:
        layers = zip(problem.loads, previous, strict=True)
        return Placement(np.array([policy.exchanged(*layer, problem.gpus) for layer in layers]))

    return Prepared(run)


@FAMILY.variant(
    "flashlb",
    source="vllm-project/vllm-ascend#6477",
    claim=Claim(232, 205, "tokens", "largest load of its example, as published"),
)
def flashlb(problem: "ExpertsProblem") -> "Prepared[Placement]":
    """Search the replicas of four groups of experts in turn, each rated by a whole placement"""
    import numpy as np

    from planners.experts.naming import renamed
    from planners.experts.problem import Placement
    from planners.experts.published.flashlb import placed

    if problem.nodes > 1:
        raise NotApplicable("It knows no groups of experts.")

    def run() -> Placement:
        slots = np.array([placed(row, problem.gpus, problem.slots) for row in problem.loads])
        if problem.previous is not None:
            shape = (problem.layers, problem.gpus, problem.per_gpu)
            rows = zip(slots.reshape(shape), problem.previous.reshape(shape), strict=True)
            slots = np.array([renamed(*row, problem.experts) for row in rows])
        return Placement(slots.reshape(problem.layers, -1))

    return Prepared(run)
