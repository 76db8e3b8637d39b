"""Answer a stream of conversions with ColossalAI's real ShapeConsistencyManager."""

from collections.abc import Callable
from typing import Any

import msgspec
from colossalai.tensor.shape_consistency import ShapeConsistencyManager
from colossalai.tensor.sharding_spec import ShardingSpec

from planners.dimspec.conversion.stream import Stream
from planners.dimspec.upstream.plain_values import device_mesh, dictionary_of, partition_of
from planners.dimspec.upstream.running import run


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Make each distinct spec, then convert in the order of the request.

    The request has `queries` and `sequence` of a `Stream`, and the keys of `running.run`. Returns
    the measurements of `run`; `answers_of` all answers; and `costs`, the total cost of each call.
    """
    convert = converter(msgspec.convert(request, Stream))
    (answers, costs), measured = run(request, convert)
    return {
        **measured,
        "answers": answers_of(answers),
        "costs": [float(cost) for cost in costs],
    }


def converter(stream: Stream) -> Callable[[], tuple[list[Any], list[float]]]:
    """Return a function that makes a stream's specs and its conversions.

    It returns ColossalAI's answers, by query, None if no call made the query; and the total cost of
    each call in order.
    """
    pairs = stream.pairs
    meshes = {
        mesh: device_mesh(mesh.shape, mesh.alpha, mesh.beta)
        for mesh in dict.fromkeys(query.mesh for query in stream.queries)
    }
    partitions = [(meshes[mesh], shape, partition) for mesh, shape, partition in stream.specs]

    def convert() -> tuple[list[Any], list[float]]:
        specs = [
            ShardingSpec(mesh, shape, dim_partition_dict=dictionary_of(partition))
            for mesh, shape, partition in partitions
        ]
        ask = ShapeConsistencyManager().shape_consistency
        answers: list[Any] = [None] * len(pairs)
        costs = []
        for index in stream.sequence:
            source, target = pairs[index]
            answers[index] = found = ask(specs[source], specs[target])
            costs.append(found[2]["total"])
        return answers, costs

    return convert


def answers_of(answers: list[Any]) -> list[Any]:
    """Return ColossalAI's answers in JSON types.

    Each has its path, comms (pattern, gather and shard dimension, mesh axis) and cost (forward,
    backward, total, in cost units).
    """
    return [None if answer is None else _answer(*answer) for answer in answers]


def _answer(path: list[Any], comms: list[Any], cost: dict[str, float]) -> dict[str, Any]:
    return {
        "path": [partition_of(spec) for spec in path],
        "comms": [
            [comm.comm_pattern.name, comm.gather_dim, comm.shard_dim, comm.logical_process_axis]
            for comm in comms
        ],
        "cost": [float(cost[phase]) for phase in ("forward", "backward", "total")],
    }
