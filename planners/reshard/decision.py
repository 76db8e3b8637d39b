"""The decision: the graph of one rank, op by op, and that its mirror is the same."""

import hashlib

from harness.contract import InfeasibleDecision
from planners.reshard.problem import (
    PaddleDecision,
    ReshardDecision,
    ReshardProblem,
    TransformerProblem,
)
from planners.reshard.resharding.block import GraphChanged
from planners.reshard.resharding.graph import attributes_of, inputs_of, kind_of, outputs_of
from planners.reshard.resharding.program import ValueLayout


def fingerprint(decision: ReshardDecision) -> str:
    """Return a hash of all ops in order: kind, names of inputs and outputs, attributes."""
    if isinstance(decision, PaddleDecision):
        return decision.fingerprint
    digest = hashlib.sha256()
    for node in decision.block.twin.nodes():
        names = ([value.debugName() for value in made(node)] for made in (inputs_of, outputs_of))
        digest.update(repr((kind_of(node), *names, sorted(attributes_of(node).items()))).encode())
    return digest.hexdigest()[:16]


def validate(problem: ReshardProblem, decision: ReshardDecision) -> None:
    """Raise InfeasibleDecision where mirror and graph differ, or an input is not as needed."""
    if isinstance(decision, PaddleDecision):
        return
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
            raise InfeasibleDecision(f"'{op}' reads what is on another stage.")
