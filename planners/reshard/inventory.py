"""What a reshard workload holds: the ops of its program, and the inputs that lie otherwise."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from harness.contract import Column, Inventory, Topology, UsageError, WorkloadSpec
from planners.reshard.problem import PaddleProblem, TransformerProblem, build
from planners.reshard.resharding.graph import inputs_of, kind_of, outputs_of
from planners.reshard.resharding.program import Program
from planners.reshard.workloads import checked

_COLUMNS = (
    Column("op"),
    Column("stage", kind="count", scale="linear"),
    Column("ops", kind="count", scale="log"),
    Column("conversions", title="to convert", unit="inputs", kind="count"),
    Column("bytes", title="makes", unit="bytes of whole tensors", kind="bytes", scale="log"),
)


class _Op(NamedTuple):
    kind: str
    stage: int
    conversions: int
    bytes: int


def inventory(workload: WorkloadSpec, topology: Topology | None) -> Inventory:
    """Return the ops of a program, those of a kind on a pipeline stage counted together.

    Raises:
        UsageError: it is unknown or malformed, is Paddle's own, or needs a topology.
    """
    checked(workload)
    if topology is None:
        raise UsageError(
            f"The program of workload '{workload}' depends on the machines; name them with "
            "--topology and --gpus."
        )
    problem = build(workload, topology)
    if isinstance(problem, PaddleProblem):
        raise UsageError(
            f"Workload '{workload}' is Paddle's own program; what it holds is known once Paddle "
            "has run."
        )
    ops = list(_ops(problem.program))
    number, conversions, made = (Counter[tuple[str, int]]() for _ in range(3))
    for op in ops:
        key = (op.kind, op.stage)
        number[key] += 1
        conversions[key] += op.conversions
        made[key] += op.bytes
    layers = f"{problem.layers:,} layers, " if isinstance(problem, TransformerProblem) else ""
    return Inventory(
        title=f"Ops of {workload}",
        part="op kind",
        columns=_COLUMNS,
        rows=tuple((*key, number[key], conversions[key], made[key]) for key in number),
        summary=f"{layers}{len(ops):,} ops on {problem.program.stages:,} x "
        f"{problem.program.tensor_parallel:,} ranks (pipeline x tensor), "
        f"{sum(conversions.values()):,} inputs to convert",
        sort="ops",
    )


def _ops(program: Program) -> Iterator[_Op]:
    for node in program.twin.nodes():
        outputs = [value.debugName() for value in outputs_of(node)]
        inputs = [value.debugName() for value in inputs_of(node)]
        needs = program.needs.get(outputs[0], ()) if outputs else ()
        lies = [program.layouts.get(name) for name in inputs]
        made = [program.layouts[name] for name in outputs if name in program.layouts]
        yield _Op(
            kind_of(node),
            made[0].stage if made else 0,
            sum(one != other for one, other in zip(lies, needs, strict=False)),
            sum(program.kinds[name].nbytes for name in outputs if name in program.kinds),
        )
