"""Problems of the reshard family and decisions on them: build, solve, check, hash, rate, observe.

A decision is the block that has resharded a program for one rank, with its program.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import attrgetter, ne
from typing import Any

from harness.contract import (
    Column,
    InfeasibleDecision,
    Inventory,
    Prepared,
    Progress,
    Recorder,
    Topology,
    UpstreamProblem,
    UsageError,
    WorkloadSpec,
    require_topology,
)
from planners.instruments import replaced
from planners.reshard.block import SYNC_EACH, Block, Policy
from planners.reshard.program import Attribute, Program, attributes_of, chain, transformer
from planners.reshard.resharder import Resharder, insert_at
from planners.reshard.workloads import PADDLE, LayersParameters, parallelism, parameters_of

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class ReshardProblem:
    """A program, and the pipeline stage to reshard it for, or positions at which to insert ops.

    `facts` are for reports, the problem's size first. `places` increase.
    """

    program: Program
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
        return ReshardProblem(chain(asked.ops), sizes, places=tuple(sorted(drawn)))
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
    sizes = {"ops": len(list(program.graph.nodes())), "values": len(program.values)}
    return ReshardProblem(program, {"layers": layers, **sizes, **mesh}, stage)


def prepare(problem: ReshardProblem, policy: Policy) -> Prepared[Block]:
    """Return a call that reshards a new copy of the program each time."""
    blocks: list[Block] = []

    def renew() -> None:
        blocks.append(Block(problem.program.copy(), policy))

    def run() -> Block:
        block = blocks.pop()
        if problem.places:
            insert_at(block, problem.places)
        else:
            Resharder(block, problem.stage).reshard()
        return block

    return Prepared(run, renew=renew)


def fingerprint(decision: Block) -> str:
    """Return a hash of all ops in order: kind, names of inputs and outputs, attributes."""
    digest = hashlib.sha256()
    for op in Block(decision.program, decision.policy).ops:  # read from the graph again
        attributes = sorted(attributes_of(op.node).items())
        digest.update(repr((op.kind, op.inputs, op.outputs, attributes)).encode())
    return digest.hexdigest()[:16]


def validate(problem: ReshardProblem, decision: Block) -> None:
    """Raise InfeasibleDecision if block and graph differ, or if an input has a wrong layout."""
    decision.check()
    decision.program.graph.lint()
    for op in decision.ops:
        have = [decision.program.values[name].layout for name in op.inputs]
        for name, layout, need in zip(op.inputs, have, decision.needs_of(op), strict=False):
            if layout != need:
                raise InfeasibleDecision(f"'{op}' needs '{name}' as {need}, but it is {layout}.")
        if any(layout.stage != problem.stage for layout in have):
            raise InfeasibleDecision(f"'{op}' reads a value on another stage.")


def quality(problem: ReshardProblem, decision: Block) -> Mapping[str, float]:
    """Return the MiB that a rank communicates (`moved_mib`), and the number of inserted ops.

    A ring all-gather of n bytes between r ranks moves (r - 1) / r * n bytes per rank, a ring
    all-reduce twice as many (Patarasuk and Yuan 2009).
    """
    values, ranks = decision.program.values, decision.program.tensor_parallel
    moved, inserted = 0.0, 0
    for op in decision.ops:
        value = values[(op.inputs or op.outputs)[0]]
        inserted += not op.outputs or op.outputs[0] not in problem.program.values
        if op.kind in ("all_gather", "all_reduce"):
            moved += (ranks - 1) / ranks * (2 if op.kind == "all_reduce" else 1) * value.nbytes
        elif op.kind in ("send", "recv"):
            moved += value.nbytes / (1 if value.layout.sharded is None else ranks)
    return {"moved_mib": moved / _MIB, "inserted_ops": inserted}


def observe(recorder: Recorder) -> AbstractContextManager[None]:
    """Record counters, phases and progress of all resharding in the `with` block."""
    counters, timed, counted = recorder.counters, recorder.timed, recorder.counted
    recorder.progress = lambda: Progress(counters["edits"], None, "edits")
    sync, replay, insert = Block.sync, Block.replay, Block.insert

    def visited(ops: Sequence[Any], values: int, names: Sequence[str]) -> None:
        counters.update(
            ops_visited=len(ops), values_visited=values, crossed_bytes=sum(map(len, names))
        )

    def synced(block: Block) -> None:
        sync(block)
        if recorder.current is not None:  # a new block's first sync is before the call
            counters["syncs"] += 1
            names = [name for op in block.ops for name in (*op.inputs, *op.outputs)]
            visited(block.ops, len(block.handles), names)

    def replayed(block: Block) -> None:
        names = [name for op, _ in block.journal for name in op.outputs]
        visited(block.journal, len(names), names)
        replay(block)

    def inserted(
        block: Block,
        place: int,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Mapping[str, Attribute],
    ) -> None:
        passed = (kind, *outputs, *attributes, *attributes.values())
        crossed = sum(len(value) if isinstance(value, str) else 8 for value in passed)
        counters.update(inserts=1, crossed_bytes=crossed)
        insert(block, place, kind, inputs, outputs, attributes)

    return replaced(
        (
            (Block, "sync", timed("syncing", synced)),
            (Block, "replay", timed("syncing", replayed)),
            (Block, "insert", timed("inserting", inserted, "edits")),
            (Block, "remove", timed("removing", Block.remove, "batches")),
            (Block, "destroy", counted("edits", counted("removals", Block.destroy))),
            (Block, "finish_insertions", counted("batches", Block.finish_insertions)),
            (Resharder, "reshard_input", counted("parses", Resharder.reshard_input)),
            (Resharder, "place_of", timed("searching", Resharder.place_of)),
            (Resharder, "readers", timed("searching", Resharder.readers)),
        )
    )


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
    problem = build(workload, require_topology(workload, topology))
    if isinstance(problem, UpstreamProblem):
        raise UsageError(
            f"Workload '{workload}' is Paddle's own program; its ops are known once Paddle has run."
        )
    program = problem.program
    block = Block(program, SYNC_EACH)
    ops, conversions, made = (Counter[tuple[str, int]]() for _ in range(3))
    for op in block.ops:
        key = op.kind, program.values[op.outputs[0]].layout.stage
        have = [program.values[name].layout for name in op.inputs]
        ops[key] += 1
        conversions[key] += sum(map(ne, have, block.needs_of(op)))
        made[key] += sum(program.values[name].nbytes for name in op.outputs)
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
