"""Problems of the reshard family and decisions on them: build, solve, check, hash, rate, list.

A decision is the resharded C++ graph of one rank, and the Python block that mirrors it.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from harness.contract import (
    Column,
    InfeasibleDecision,
    Inventory,
    Prepared,
    Topology,
    UpstreamProblem,
    UsageError,
    WorkloadSpec,
)
from planners.reshard.block import (
    NAMESPACE,
    Block,
    GraphChanged,
    Policy,
    Twin,
    attributes_of,
    inputs_of,
    outputs_of,
)
from planners.reshard.observer import observe
from planners.reshard.program import REPLICATED, DistProgram, transformer
from planners.reshard.resharder import Resharded, Resharder
from planners.reshard.workloads import PADDLE, LayersParameters, parallelism, parameters_of

__all__ = ["build", "facts", "fingerprint", "inventory", "observe", "prepare", "quality"]

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class ReshardProblem:
    """A program, and the pipeline stage to reshard it for, or positions at which to insert ops.

    `facts` are for reports, the problem's size first. `places` increase.
    """

    program: DistProgram
    facts: Mapping[str, float | str]
    stage: int = 0
    places: tuple[int, ...] = ()


facts = attrgetter("facts")
"""Describe a problem, its size first."""


def build(spec: WorkloadSpec, topology: Topology) -> ReshardProblem | UpstreamProblem:
    """Return the problem of a workload; raises UsageError if it does not fit the topology.

    Paddle builds its own programs.
    """
    asked = parameters_of(spec)
    if not isinstance(asked, LayersParameters):
        drawn = random.Random(asked.seed).sample(range(1, asked.ops + 1), asked.inserts)
        sizes = {"ops": asked.ops + 1, "inserts": asked.inserts}
        return ReshardProblem(_chain(asked.ops), sizes, places=tuple(sorted(drawn)))
    layers, stage = asked.layers, asked.stage
    stages, ranks = parallelism(spec, asked, topology)
    mesh = {"pipeline x tensor": f"{stages} x {ranks}"}
    if spec.name == PADDLE:
        rank = stage * ranks
        return UpstreamProblem(
            {"layers": layers, **mesh, "rank": str(rank)},
            {"layers": layers, "pipeline": stages, "tensor": ranks, "rank": rank},
        )
    program = transformer(layers, stages, ranks)
    ops, values = len(program.twin.nodes()), len(program.layouts)
    return ReshardProblem(program, {"layers": layers, "ops": ops, "values": values, **mesh}, stage)


def _chain(ops: int) -> DistProgram:
    twin = Twin()
    last = twin.create("feed", [], ["v0"], {})
    for number in range(1, ops + 1):
        last = twin.create("step", [last.outputsAt(0)], [f"v{number}"], {"number": number})
    return DistProgram(twin, stages=1, tensor_parallel=1)


def prepare(problem: ReshardProblem, policy: Policy) -> Prepared[Resharded]:
    """Return a call that reshards a new copy of the program each time."""
    fresh: list[Resharded] = []

    def renew() -> None:
        program = problem.program.copy()
        fresh[:] = [Resharded(program, Block(program.twin, policy))]

    def run() -> Resharded:
        decision = fresh.pop()
        if problem.places:
            _insert_all(decision.block, problem.places)
        else:
            Resharder(*decision, problem.stage).reshard()
        return decision

    return Prepared(run, renew=renew)


def _insert_all(block: Block, places: tuple[int, ...]) -> None:
    """Insert an op before each position; the op at that position then reads its output."""
    for number, place in enumerate(places):
        before = block.ops[place + number - 1].outputs[0]
        made = f"{before}@to:{number}"
        block.insert(place + number, "insert", [before], [made], {"number": number})
        block.rename_input(block.ops[place + number + 1], before, made)
    block.finish_edits()


def fingerprint(decision: Resharded) -> str:
    """Return a hash of all ops in order: kind, names of inputs and outputs, attributes."""
    digest = hashlib.sha256()
    for node in decision.block.twin.nodes():
        op = (*_described(node), sorted(attributes_of(node).items()))
        digest.update(repr(op).encode())
    return digest.hexdigest()[:16]


def _described(node: Any) -> tuple[str, list[str], list[str]]:
    """Return the kind of a node, and the names of its inputs and outputs."""
    inputs, outputs = (
        [value.debugName() for value in values] for values in (inputs_of(node), outputs_of(node))
    )
    return str(node.kind()).removeprefix(NAMESPACE), inputs, outputs


def validate(problem: ReshardProblem, decision: Resharded) -> None:
    """Raise InfeasibleDecision if block and graph differ, or if an input has a wrong layout."""
    program, block = decision
    try:
        block.check()
    except GraphChanged as error:
        raise InfeasibleDecision(str(error)) from None
    block.twin.graph.lint()
    if problem.places:  # insertions alone: values have no layouts
        return
    for op in block.ops:
        needs = problem.program.needs.get((op.outputs or [""])[0], ())
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
    program, block = decision
    ranks = program.tensor_parallel
    moved, inserted = 0.0, 0
    for op in block.ops:
        inserted += (op.outputs or [""])[0] not in problem.program.layouts
        if op.type in ("all_gather", "all_reduce"):
            share = (ranks - 1) / ranks * (2 if op.type == "all_reduce" else 1)
            moved += share * program.kinds[op.inputs[0]].nbytes
        elif op.type in ("send", "recv"):
            name = (op.outputs or op.inputs)[0]
            is_shared = program.layouts[name].sharded != REPLICATED
            moved += program.kinds[name].nbytes / (ranks if is_shared else 1)
    return {"moved_mib": moved / _MIB, "inserted_ops": inserted}


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
        kind, inputs, outputs = _described(node)
        layout = program.layouts.get(outputs[0])
        key = kind, layout.stage if layout else 0
        needs = program.needs.get(outputs[0], ())
        ops[key] += 1
        conversions[key] += sum(
            program.layouts[name] != need for name, need in zip(inputs, needs, strict=False)
        )
        made[key] += sum(program.kinds[name].nbytes for name in outputs if name in program.kinds)
    layers = f"{problem.facts['layers']:,} layers, " if "layers" in problem.facts else ""
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
