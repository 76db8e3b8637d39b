"""Build the sharding strategies of a whole model with ColossalAI's real StrategiesConstructor.

This follows ColossalAI's `initialize_model`, without process groups and without the code generator
for activation checkpoints, which does not run on current torch. All tensors are meta tensors.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from colossalai._analyzer.fx.passes import shape_prop_pass
from colossalai._analyzer.fx.tracer.tracer import ColoTracer
from colossalai.auto_parallel.tensor_shard.initialize import build_strategy_constructor
from colossalai.auto_parallel.tensor_shard.sharding_strategy import ShardingStrategy, TrainCycleItem
from colossalai.auto_parallel.tensor_shard.solver import StrategiesConstructor
from colossalai.device.device_mesh import DeviceMesh
from colossalai.tensor.sharding_spec import ShardingSpec

from planners.dimspec.upstream.accelerate import partition_of
from planners.dimspec.upstream.models import MODELS


def builder(model: str, mesh: DeviceMesh) -> Callable[[], StrategiesConstructor]:
    """Trace a model of MODELS, and return a function that builds its strategies."""
    make, inputs = MODELS[model]
    meta_args = {name: torch.empty(shape, device="meta") for name, shape in inputs.items()}
    with torch.device("meta"):
        root = make()
    tracer = ColoTracer(trace_act_ckpt=True, bias_addition_split=True)
    graph = tracer.trace(root=root, meta_args=meta_args)
    module = torch.fx.GraphModule(root, graph, type(root).__name__)
    shape_prop_pass(module, *meta_args.values())
    module.recompile()
    return partial(
        build_strategy_constructor,
        module.graph,
        mesh,
        solver_preference="standard",
        dataloader_option="replicated",
        shard_option="standard",
    )


def described(constructor: StrategiesConstructor) -> dict[str, Any]:
    """Return the quality of the strategies, and a hash of all input for ColossalAI's solver.

    The hash covers, in order, the names of nodes and strategies; the sharding specs of each
    strategy (tensor name, shape, partition in insertion order); and, to the last bit, its compute
    and communication costs and its resharding costs by predecessor; not memory costs.
    """
    digest = hashlib.sha256()
    reported: list[float] = []
    for vector in constructor.leaf_strategies:
        digest.update(f"node {vector.node}\n".encode())
        for strategy in vector:
            digest.update("".join(f"{line}\n" for line in _lines(strategy)).encode())
            for costs in (strategy.resharding_costs or {}).values():
                reported += [cost.total for cost in costs]
    return {
        "fingerprint": digest.hexdigest(),
        "quality": {"reported_millions": float(sum(reported)) / 1e6},
    }


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
