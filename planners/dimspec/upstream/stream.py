"""A stream of conversions, asked of a real ShapeConsistencyManager with real sharding specs."""

from typing import Any

from colossalai.tensor.shape_consistency import ShapeConsistencyManager
from colossalai.tensor.sharding_spec import ShardingSpec

from planners.dimspec.upstream.plain_values import (
    device_mesh,
    dictionary_of,
    pairs_of,
    partition_of,
)
from planners.dimspec.upstream.running import run

_Question = tuple[tuple[Any, ...], tuple[Any, ...]]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Convert as often and in the order that the request says.

    Making one spec for each distinct partition of a tensor is part of what is timed.

    Args:
        request: `meshes` (shape, alpha, beta), `questions` (mesh by index, shape in elements,
            source and target partition in insertion order), `sequence` (questions by index), and
            what `running.run` takes.

    Returns:
        What `running.run` measured; `answers` with path, comms (pattern, gather and shard
        dimension, mesh axis) and cost (forward, backward, total, in cost units) for each question,
        None for one that was not asked; and `costs`, the total of each call in order.
    """
    meshes = [device_mesh(mesh["shape"], mesh["alpha"], mesh["beta"]) for mesh in request["meshes"]]
    questions = [_question(question) for question in request["questions"]]
    sequence = request["sequence"]

    def convert() -> tuple[list[Any], list[float]]:
        specs: dict[tuple[Any, ...], ShardingSpec] = {}
        pairs = []
        for question in questions:
            for key in question:
                if key not in specs:
                    mesh, shape, partition = key
                    specs[key] = ShardingSpec(
                        meshes[mesh], shape, dim_partition_dict=dictionary_of(partition)
                    )
            pairs.append((specs[question[0]], specs[question[1]]))
        ask = ShapeConsistencyManager().shape_consistency
        answers: list[Any] = [None] * len(questions)
        costs = []
        for index in sequence:
            answers[index] = found = ask(*pairs[index])
            costs.append(found[2]["total"])
        return answers, costs

    (answers, costs), measured = run(request, convert)
    return {
        **measured,
        "answers": [None if found is None else _answer(*found) for found in answers],
        "costs": [float(cost) for cost in costs],
    }


def _question(question: dict[str, Any]) -> _Question:
    mesh, shape = question["mesh"], tuple(question["shape"])
    source, target = (
        (mesh, shape, tuple((dim, tuple(axes)) for dim, axes in question[end]))
        for end in ("source", "target")
    )
    return source, target


def _answer(path: list[Any], comms: list[Any], cost: dict[str, float]) -> dict[str, Any]:
    return {
        "path": [pairs_of(partition_of(spec)) for spec in path],
        "comms": [
            [comm.comm_pattern.name, comm.gather_dim, comm.shard_dim, comm.logical_process_axis]
            for comm in comms
        ],
        "cost": [float(cost[phase]) for phase in ("forward", "backward", "total")],
    }
