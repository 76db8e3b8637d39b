"""List the ops of a reshard workload, and count the inputs that need resharding."""

from collections import Counter

from harness.contract import Column, Inventory, Topology, UpstreamProblem, UsageError, WorkloadSpec
from planners.reshard.problem import TransformerProblem, build
from planners.reshard.resharding.graph import inputs_of, kind_of, outputs_of
from planners.reshard.workloads import parameters_of

_COLUMNS = (
    Column("op"),
    Column("stage", kind="count", scale="linear"),
    Column("ops", kind="count", scale="log"),
    Column("conversions", title="to convert", unit="inputs", kind="count"),
    Column("bytes", title="makes", unit="bytes of whole tensors", kind="bytes", scale="log"),
)


def inventory(workload: WorkloadSpec, topology: Topology | None) -> Inventory:
    """Return a table of a program's ops, with one row per op kind and pipeline stage.

    Raises UsageError if the workload is unknown or is Paddle's own, or if `topology` is None.
    """
    parameters_of(workload)
    if topology is None:
        raise UsageError(
            f"The program of workload '{workload}' depends on the machines; name them with "
            "--topology and --gpus."
        )
    problem = build(workload, topology)
    if isinstance(problem, UpstreamProblem):
        raise UsageError(
            f"Workload '{workload}' is Paddle's own program; its ops are known once Paddle has run."
        )
    program = problem.program
    ops, conversions, made = (Counter[tuple[str, int]]() for _ in range(3))
    for node in program.twin.nodes():
        inputs, outputs = (
            [value.debugName() for value in values(node)] for values in (inputs_of, outputs_of)
        )
        stage = next(
            (program.layouts[name].stage for name in outputs if name in program.layouts), 0
        )
        key = kind_of(node), stage
        needs = program.needs.get(outputs[0], ()) if outputs else ()
        ops[key] += 1
        conversions[key] += sum(
            program.layouts.get(name) != need for name, need in zip(inputs, needs, strict=False)
        )
        made[key] += sum(program.kinds[name].nbytes for name in outputs if name in program.kinds)
    layers = f"{problem.layers:,} layers, " if isinstance(problem, TransformerProblem) else ""
    return Inventory(
        title=f"Ops of {workload}",
        part="op kind",
        columns=_COLUMNS,
        rows=tuple((*key, ops[key], conversions[key], made[key]) for key in ops),
        summary=f"{layers}{ops.total():,} ops on {program.stages:,} x "
        f"{program.tensor_parallel:,} ranks (pipeline x tensor), "
        f"{conversions.total():,} inputs to convert",
        sort="ops",
    )
