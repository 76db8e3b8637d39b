"""Build the problems of the reshard family; check, hash and rate decisions. Imports torch.

A decision is the resharded C++ graph of one rank, and the Python block that mirrors it.
"""

import hashlib
from collections.abc import Mapping
from operator import methodcaller

from harness.contract import InfeasibleDecision
from planners.reshard.observer import observe
from planners.reshard.problem import ReshardProblem, TransformerProblem, build
from planners.reshard.resharding.block import GraphChanged
from planners.reshard.resharding.graph import attributes_of, inputs_of, kind_of, outputs_of
from planners.reshard.resharding.program import REPLICATED, ValueLayout
from planners.reshard.resharding.resharder import Resharded

__all__ = ["build", "facts", "fingerprint", "observe", "quality", "validate"]

_MIB = 2**20

facts = methodcaller("facts")
"""Describe a problem, its size first."""


def fingerprint(decision: Resharded) -> str:
    """Return a hash of all ops in order: kind, names of inputs and outputs, attributes."""
    digest = hashlib.sha256()
    for node in decision.block.twin.nodes():
        names = ([value.debugName() for value in made(node)] for made in (inputs_of, outputs_of))
        digest.update(repr((kind_of(node), *names, sorted(attributes_of(node).items()))).encode())
    return digest.hexdigest()[:16]


def validate(problem: ReshardProblem, decision: Resharded) -> None:
    """Raise InfeasibleDecision if block and graph differ, or if an input has a wrong layout."""
    block, program = decision.block, decision.program
    try:
        block.check()
    except GraphChanged as error:
        raise InfeasibleDecision(str(error)) from None
    block.twin.graph.lint()
    if not isinstance(problem, TransformerProblem):
        return
    for op in block.ops:
        needs: tuple[ValueLayout, ...] = problem.program.needs.get((op.outputs or [""])[0], ())
        for name, need in zip(op.inputs, needs, strict=False):
            if program.layouts[name] != need:
                raise InfeasibleDecision(
                    f"'{op}' needs '{name}' as {need}, but it is {program.layouts[name]}."
                )
        if any(program.layouts[name].stage != problem.stage for name in op.inputs):
            raise InfeasibleDecision(f"'{op}' reads a value on another stage.")


def quality(problem: ReshardProblem, decision: Resharded) -> Mapping[str, float]:
    """Return the MiB that a rank communicates (`moved_mib`), and the number of inserted ops.

    A ring all-gather of n bytes between r ranks moves (r - 1) / r * n bytes per rank, a ring
    all-reduce twice as many (Patarasuk and Yuan 2009).
    """
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
