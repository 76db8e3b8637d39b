"""Problems of the reshard family, built from workloads, and the timed calls on them."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from harness.contract import Prepared, Topology, UpstreamProblem, WorkloadSpec
from planners.reshard.resharding.block import Block
from planners.reshard.resharding.graph import Twin
from planners.reshard.resharding.program import DistProgram, transformer
from planners.reshard.resharding.resharder import Resharded, Resharder
from planners.reshard.workloads import PADDLE, MicroParameters, parallelism, parameters_of


@dataclass(frozen=True, slots=True)
class TransformerProblem:
    """A program with the layouts of its values, and the pipeline stage to reshard it for."""

    program: DistProgram
    layers: int
    stage: int

    def facts(self) -> dict[str, float | str]:
        """Return facts for reports; `layers`, the first one, is the problem size."""
        program = self.program
        return {
            "layers": self.layers,
            "ops": len(program.twin.nodes()),
            "values": len(program.layouts),
            "pipeline x tensor": f"{program.stages} x {program.tensor_parallel}",
        }


@dataclass(frozen=True, slots=True)
class MicroProblem:
    """A chain of ops, and the increasing positions at which to insert ops."""

    program: DistProgram
    places: tuple[int, ...]

    def facts(self) -> dict[str, float | str]:
        """Return facts for reports; `ops`, the first one, is the problem size."""
        return {"ops": len(self.program.twin.nodes()), "inserts": len(self.places)}


ReshardProblem = TransformerProblem | MicroProblem


def build(spec: WorkloadSpec, topology: Topology) -> ReshardProblem | UpstreamProblem:
    """Return the problem of a workload; raises UsageError if it does not fit the topology.

    Paddle builds its own programs.
    """
    asked = parameters_of(spec)
    if isinstance(asked, MicroParameters):
        drawn = random.Random(asked.seed).sample(range(1, asked.ops + 1), asked.inserts)
        return MicroProblem(_chain(asked.ops), tuple(sorted(drawn)))
    layers, stage = asked.layers, asked.stage
    stages, ranks = parallelism(spec, asked, topology)
    if spec.name == PADDLE:
        rank = stage * ranks
        return UpstreamProblem(
            {"layers": layers, "pipeline x tensor": f"{stages} x {ranks}", "rank": str(rank)},
            {"layers": layers, "pipeline": stages, "tensor": ranks, "rank": rank},
        )
    return TransformerProblem(transformer(layers, stages, ranks), layers, stage)


def _chain(ops: int) -> DistProgram:
    twin = Twin()
    last = twin.create("feed", [], ["v0"], {})
    for number in range(1, ops + 1):
        last = twin.create("step", [last.outputsAt(0)], [f"v{number}"], {"number": number})
    return DistProgram(twin, stages=1, tensor_parallel=1)


def prepare(
    problem: ReshardProblem, block: Callable[[Twin], Block], resharder: type[Resharder] = Resharder
) -> Prepared[Resharded]:
    """Return a call that reshards a new copy each time."""
    whole = problem.program
    fresh: list[tuple[DistProgram, Block]] = []

    def renew() -> None:
        program = whole.copy()
        fresh[:] = [(program, block(program.twin))]

    def run() -> Resharded:
        program, mirror = fresh.pop()
        if isinstance(problem, MicroProblem):
            return _insert_all(program, mirror, problem.places)
        return resharder(program, mirror, problem.stage).reshard()

    return Prepared(run, renew=renew)


def _insert_all(program: DistProgram, block: Block, places: tuple[int, ...]) -> Resharded:
    """Insert an op before each position; the op at that position then reads its output."""
    for number, place in enumerate(places):
        before = block.ops[place + number - 1].outputs[0]
        made = f"{before}@to:{number}"
        block.insert(place + number, "insert", [before], [made], {"number": number})
        block.rename_input(block.ops[place + number + 1], before, made)
    block.finish()
    return Resharded(block, program)
