"""Run one release of ColossalAI's planner, in a child process that has it on the import path.

`harness.contract.ask_upstream` sends the requests. This process takes the times. Counters need a
separate request, because counting slows the calls.
"""
# ruff: noqa: E402 - the stubs come before ColossalAI

from planners.dimspec.upstream import stubs

stubs.install()

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

import msgspec
import torch
from colossalai.device.device_mesh import DeviceMesh
from colossalai.tensor.shape_consistency import ShapeConsistencyManager
from colossalai.tensor.sharding_spec import ShardingSpec, _DimSpec

from planners.dimspec.problem import Stream
from planners.dimspec.upstream.accelerate import accelerate, partition_of, values_of
from planners.instruments import counted, timed

T = TypeVar("T")


def device_mesh(
    shape: Sequence[int], alpha: Sequence[float] | None = None, beta: Sequence[float] | None = None
) -> DeviceMesh:
    """Return a ColossalAI mesh without process groups; `alpha` and `beta` default to all 1."""
    devices = torch.arange(math.prod(shape))
    return DeviceMesh(
        devices, tuple(shape), mesh_alpha=alpha, mesh_beta=beta, init_process_group=False
    )


def counting() -> AbstractContextManager[Counter[str]]:
    """Count ColossalAI's work in the `with` block; the caller adds the counter `searches`."""
    distinct: set[Any] = set()

    def conversion(counters: Counter[str], _: Any, source_spec: Any, target_spec: Any) -> None:
        mesh, shape = values_of(source_spec.device_mesh), source_spec.entire_shape
        distinct.add((mesh, shape, partition_of(source_spec), partition_of(target_spec)))
        counters["conversions"] += 1
        counters["distinct_searches"] = len(distinct)

    return counted(
        (ShapeConsistencyManager, "get_all_one_step_transform_spec", "expansions"),
        # ColossalAI 0.4.0 has the first of these two, and calls it in every constructor.
        (_DimSpec, "build_difference_2d_dict", "dictionaries_built"),
        (_DimSpec, "_build_difference_2d_dict", "dictionaries_built"),
        (_DimSpec, "__init__", "dim_specs_built"),
        (_DimSpec, "difference", "difference_calls"),
        (ShardingSpec, "__init__", "sharding_specs_built"),
        (ShapeConsistencyManager, "shape_consistency", conversion),
        others=("conversions", "distinct_searches"),
    )


def run(request: dict[str, Any], call: Callable[[], T]) -> tuple[T, dict[str, Any]]:
    """Call once; return the result, with `wall_s`, `cpu_s` (process CPU time) and `counters`.

    The request has `is_accelerated` and `count`. Without `count`, there are no counters, and no
    method of ColossalAI is patched for them.
    """
    ShapeConsistencyManager().cached_spec_pairs_transform_path.clear()
    with ExitStack() as stack:
        ours = stack.enter_context(accelerate()) if request["is_accelerated"] else None
        counters = stack.enter_context(counting()) if request["count"] else None
        result, measured = timed(call)
    if counters is not None:
        searches = ours.searches + ours.left_to_upstream if ours else counters["conversions"]
        counters["searches"] = searches
    return result, {**measured, "counters": counters or {}}


def convert_stream(request: dict[str, Any]) -> dict[str, Any]:
    """Make each distinct spec, then convert in the order of the request.

    The request has `queries` and `sequence` of a `Stream`, and the keys of `run`. Returns the
    measurements of `run` and the fields of `Answers`.
    """
    stream = msgspec.convert(request, Stream)
    pairs = stream.pairs
    meshes = {mesh: device_mesh(mesh.shape, mesh.alpha, mesh.beta) for mesh, *_ in stream.specs}

    def convert() -> tuple[list[Any], list[float]]:
        specs = [
            ShardingSpec(
                meshes[mesh],
                shape,
                dim_partition_dict={dim: list(axes) for dim, axes in partition},
            )
            for mesh, shape, partition in stream.specs
        ]
        ask = ShapeConsistencyManager().shape_consistency
        answers: list[Any] = [None] * len(pairs)
        costs = []
        for index in stream.sequence:
            source, target = pairs[index]
            answers[index] = answer = ask(specs[source], specs[target])
            costs.append(answer[2]["total"])
        return answers, costs

    (answers, costs), measured = run(request, convert)
    return {
        **measured,
        "conversions": [_conversion(*answer) for answer in answers],
        "costs": list(map(float, costs)),
    }


def _conversion(path: list[Any], comms: list[Any], cost: dict[str, float]) -> list[Any]:
    """Return ColossalAI's answer as a `Conversion` in JSON types."""
    return [
        [partition_of(spec) for spec in path],
        [
            [comm.comm_pattern.name, comm.gather_dim, comm.shard_dim, comm.logical_process_axis]
            for comm in comms
        ],
        [float(cost[phase]) for phase in ("forward", "backward", "total")],
    ]


def construct(request: dict[str, Any]) -> dict[str, Any]:
    """Trace a model and build its strategies with ColossalAI's StrategiesConstructor.

    The request has `model` and `mesh_shape`, and the keys of `run`. Returns its measurements, and a
    hash and the quality of the strategies.
    """
    from planners.dimspec.upstream import constructor

    build = constructor.builder(request["model"], device_mesh(request["mesh_shape"]))
    strategies, measured = run(request, build)
    return {**measured, **constructor.described(strategies)}


HANDLERS = {"stream": convert_stream, "constructor": construct}
