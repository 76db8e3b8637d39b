"""Decide an op if some strategy accepts its inputs in their present placements.

If several combinations of strategies move no input, torch takes the last: on each mesh dim, the
last strategy with the placements of the inputs. This module looks up that strategy and builds
nothing else. Torch decides all other cases, as in `cheapest.py`.
"""

from collections.abc import Sequence
from typing import Any

from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding
from torch.distributed.tensor._ops.single_dim_strategy import _ShardingPlaceholder

from planners.dtensor.dispatch.torch_path import PROPAGATOR, traits
from planners.dtensor.search import tensor_meta
from planners.dtensor.search.operands import (
    REPLICATE,
    Codes,
    TorchDiffers,
    are_of_one_kind,
    encode,
    encode_all,
    has_enough,
)
from planners.dtensor.search.tensor_meta import PRODUCTS, is_pointwise

Row = Sequence[Placement | _ShardingPlaceholder | None]
"""A strategy on one mesh dim: placements of the output, then of the inputs."""


def decide_without_redistribution(schema: OpSchema) -> OutputSharding | None:
    """Return torch's decision for an op that moves no input; None if torch must decide."""
    op, args = schema.op, schema.args_schema
    strategy = PROPAGATOR.op_single_dim_strategy_funcs.get(op)
    if (
        strategy is None
        or getattr(strategy, "full_mesh_strategy_filter", None)
        or not traits(op).makes_one_tensor
        or not (op in PRODUCTS or is_pointwise(op))
    ):
        return None
    specs = [arg for arg in args if isinstance(arg, DTensorSpec)]
    try:
        sources = [encode_all(spec, specs[0].mesh) for spec in specs]
    except TorchDiffers:
        return None
    mesh = specs[0].mesh
    if (
        any(spec.mesh is not mesh for spec in specs)
        or not mesh._is_current_rank_part_of_mesh()
        or not all(map(are_of_one_kind, sources))
    ):
        return None
    if not strategy.allow_uneven_sharding and not all(
        has_enough(spec.tensor_meta.shape, source, mesh.shape)
        for spec, source in zip(specs, sources, strict=True)
    ):
        return None
    meta = tensor_meta.plain_meta(schema)
    if meta is None:
        return None
    metas = tuple([arg.tensor_meta if isinstance(arg, DTensorSpec) else arg for arg in args])
    try:
        rows = strategy.func(op, metas, {})
    except Exception:  # torch then raises its own error
        return None
    placements = _output_placements(rows, sources)
    if placements is None:
        return None
    return OutputSharding(DTensorSpec(mesh, placements, meta))


def _output_placements(
    rows: Sequence[Row], sources: Sequence[Codes]
) -> tuple[Placement, ...] | None:
    """Return the output's placements if no input moves; None if no such strategy exists."""
    wanted = set(zip(*sources, strict=True))
    is_sharded = any(max(source) > REPLICATE for source in sources)
    found: dict[Codes, Placement] = {(REPLICATE,) * len(sources): Replicate()}  # by torch
    try:
        for output, *inputs in rows:
            if output is None or len(inputs) != len(sources):
                return None
            if not is_sharded and _ShardingPlaceholder in map(type, (output, *inputs)):
                continue  # a placeholder takes the inputs' kind of sharding, and none is sharded
            row = tuple([_code(given) for given in inputs])
            if row in wanted:
                found[row] = Shard(output.dim) if type(output) is _ShardingPlaceholder else output
        chosen = tuple([found[row] for row in zip(*sources, strict=True)])
        if not are_of_one_kind([encode(placement) for placement in chosen]):
            return None
    except (TorchDiffers, KeyError):
        return None
    return chosen


def _code(wanted: Any) -> int:
    if type(wanted) is _ShardingPlaceholder:
        return int(wanted.dim)
    if wanted is None:
        raise TorchDiffers("This op leaves an input out.")
    return encode(wanted)
