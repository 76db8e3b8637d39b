"""Rate a resharded program: what its rank moves, and how much was inserted for that."""

from collections.abc import Mapping

from planners.reshard.problem import PaddleDecision, PaddleProblem, ReshardDecision, ReshardProblem
from planners.reshard.resharding.program import REPLICATED

_MIB = 2**20


def quality(problem: ReshardProblem, decision: ReshardDecision) -> Mapping[str, float]:
    """Return the qualities of a decision; what Paddle made is told by a hash and has none.

    A ring all-gather of n bytes between r ranks brings (r - 1) / r * n to each, a ring all-reduce
    twice that (Patarasuk and Yuan 2009).
    """
    if isinstance(decision, PaddleDecision) or isinstance(problem, PaddleProblem):
        return {}
    program = decision.program
    ranks = program.tensor_parallel
    moved = 0.0
    for op in decision.block.ops:
        if op.type in ("all_gather", "all_reduce"):
            share = (ranks - 1) / ranks * (2 if op.type == "all_reduce" else 1)
            moved += share * program.kinds[op.inputs[0]].nbytes
        elif op.type in ("send", "recv"):
            name = (op.outputs or op.inputs)[0]
            is_shared = program.layouts[name].sharded != REPLICATED
            moved += program.kinds[name].nbytes / (ranks if is_shared else 1)
    inserted = len(decision.block.ops) - sum(
        (op.outputs or [""])[0] in problem.program.layouts for op in decision.block.ops
    )
    return {"moved_mib": moved / _MIB, "inserted_ops": inserted}
