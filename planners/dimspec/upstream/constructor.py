"""Build the sharding strategies of a whole model with ColossalAI's real StrategiesConstructor.

This follows ColossalAI's `initialize_model`, without process groups and without the code generator
for activation checkpoints, which does not run on current torch. All tensors are meta tensors.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from colossalai._analyzer.fx.passes import shape_prop_pass
from colossalai._analyzer.fx.tracer.tracer import ColoTracer
from colossalai.auto_parallel.tensor_shard.initialize import build_strategy_constructor
from colossalai.auto_parallel.tensor_shard.sharding_strategy import ShardingStrategy, TrainCycleItem
from colossalai.auto_parallel.tensor_shard.solver import StrategiesConstructor
from colossalai.tensor.sharding_spec import ShardingSpec

from planners.dimspec.upstream.models import MODELS
from planners.dimspec.upstream.plain_values import device_mesh, partition_of
from planners.dimspec.upstream.running import run


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Trace a model, build its strategies; return measurements and the keys of `described`.

    The request has `model`, a name of MODELS; `mesh_shape`; and the keys of `running.run`.
    """
    constructor, measured = build(request)
    return {**measured, **described(constructor)}


def build(request: dict[str, Any]) -> tuple[StrategiesConstructor, dict[str, Any]]:
    """Return a constructor with a model's strategies, and the measurements of `running.run`."""
    if request["model"] not in MODELS:
        raise ValueError(f"model is '{request['model']}'; known are: {', '.join(MODELS)}")
    module = traced(request["model"])
    mesh = device_mesh(request["mesh_shape"])
    return run(
        request,
        lambda: build_strategy_constructor(
            module.graph,
            mesh,
            solver_preference="standard",
            dataloader_option="replicated",
            shard_option="standard",
        ),
    )


def traced(model: str) -> torch.fx.GraphModule:
    """Return a model of MODELS as an fx graph with shapes on its nodes."""
    make, inputs = MODELS[model]
    meta_args = {name: torch.empty(shape, device="meta") for name, shape in inputs.items()}
    with torch.device("meta"):
        root = make()
    graph = ColoTracer(trace_act_ckpt=True, bias_addition_split=True).trace(
        root=root, meta_args=meta_args
    )
    module = torch.fx.GraphModule(root, graph, type(root).__name__)
    shape_prop_pass(module, *meta_args.values())
    module.recompile()
    return module


def described(constructor: StrategiesConstructor) -> dict[str, Any]:
    """Return the fingerprint, the numbers of nodes, strategies and costs, and the quality."""
    strategies = [strategy for vector in constructor.leaf_strategies for strategy in vector]
    costs = [
        cost
        for strategy in strategies
        for costs in (strategy.resharding_costs or {}).values()
        for cost in costs
    ]
    return {
        "fingerprint": fingerprint(constructor),
        "nodes": len(constructor.nodes),
        "strategies": len(strategies),
        "resharding_costs": len(costs),
        "quality": {"reported_millions": float(sum(cost.total for cost in costs)) / 1e6},
    }


def fingerprint(constructor: StrategiesConstructor) -> str:
    """Return a hash of all input for ColossalAI's solver except memory costs.

    It covers, in order, the names of nodes and strategies; the sharding specs of each strategy
    (tensor name, shape, partition in insertion order); and, to the last bit, its compute and
    communication costs and its resharding costs by predecessor.
    """
    digest = hashlib.sha256()
    for vector in constructor.leaf_strategies:
        for line in (f"node {vector.node}", *map("\n".join, map(_lines, vector))):
            digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def _lines(strategy: ShardingStrategy) -> Iterator[str]:
    yield f"strategy {strategy.name}"
    for operand, spec in strategy.sharding_specs.items():
        yield f"spec {operand.name} {_plain(spec)}"
    yield f"compute {_hex([strategy.compute_cost])}"
    yield f"communication {_hex([strategy.communication_cost])}"
    for node, costs in (strategy.resharding_costs or {}).items():
        yield f"resharding {node} {_hex(costs)}"


def _plain(spec: Any) -> Any:
    if isinstance(spec, ShardingSpec):
        return tuple(spec.entire_shape), partition_of(spec)
    return [_plain(part) for part in spec] if isinstance(spec, (list, tuple)) else spec


def _hex(costs: Iterable[TrainCycleItem | None]) -> str:
    return " ".join(
        "none"
        if cost is None
        else ",".join(float(x).hex() for x in (cost.fwd, cost.bwd, cost.total))
        for cost in costs
    )
