"""Decide at once an op of which no input has to be moved.

Torch takes the last of the combinations of strategies whose placements are those of the inputs: on
each mesh dim the last such strategy. That one is looked up in the strategies of one mesh dim, and
nothing else is put together. What torch knows beyond that is left to it, as in `cheapest.py`.
"""

from collections.abc import Container, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding
from torch.distributed.tensor._ops.single_dim_strategy import _ShardingPlaceholder

from planners.dtensor.dispatch.torch_path import PROPAGATOR, traits
from planners.dtensor.search.cheapest import (
    REPLICATE,
    Codes,
    TorchDiffers,
    are_of_one_kind,
    encode,
    has_enough,
)
from planners.dtensor.search.tensor_meta import PRODUCTS, is_pointwise, plain_meta

Row = Sequence[Placement | _ShardingPlaceholder | None]
"""A strategy on one mesh dim: placements of the output, then of the inputs."""


def decided_at_once(but_for: Container[Any] = ()) -> AbstractContextManager[Any]:
    """Decide ops that move nothing here, but for those in `but_for`, which may change."""
    ask_torch = PROPAGATOR.propagate_op_sharding_non_cached

    def propagate(schema: OpSchema) -> OutputSharding:
        found = None if schema.op in but_for else decision(schema)
        return ask_torch(schema) if found is None else found

    return mock.patch.object(PROPAGATOR, "propagate_op_sharding_non_cached", propagate, create=True)


def decision(schema: OpSchema) -> OutputSharding | None:
    """Return what torch decides for an op that moves nothing; None where torch has to look."""
    op, args = schema.op, schema.args_schema
    strategy = PROPAGATOR.op_single_dim_strategy_funcs.get(op)
    if (
        strategy is None
        or getattr(strategy, "full_mesh_strategy_filter", None)
        or not traits(op).makes_one_tensor
        or not (op in PRODUCTS or is_pointwise(op))
    ):
        return None
    specs = [each for each in args if isinstance(each, DTensorSpec)]
    try:
        sources = [_encoded(each, specs[0]) for each in specs]
    except TorchDiffers:
        return None
    mesh = specs[0].mesh
    if not mesh._is_current_rank_part_of_mesh() or not all(map(are_of_one_kind, sources)):
        return None
    if not strategy.allow_uneven_sharding and not all(
        has_enough(each.tensor_meta.shape, source, mesh.shape)
        for each, source in zip(specs, sources, strict=True)
    ):
        return None
    meta = plain_meta(schema)
    if meta is None:
        return None
    try:
        rows = strategy.func(op, tuple([_without_placement(each) for each in args]), {})
    except Exception:  # torch is to say what is wrong
        return None
    placements = _output_placements(rows, sources)
    if placements is None:
        return None
    return OutputSharding(DTensorSpec(mesh, placements, meta))


def _encoded(spec: DTensorSpec, first: DTensorSpec) -> Codes:
    """Return a spec's placements; raises TorchDiffers where torch has other rules for them."""
    codes = tuple([encode(placement) for placement in spec.placements])
    if (
        spec.mesh is not first.mesh
        or spec.tensor_meta is None
        or not all(type(size) is int for size in spec.tensor_meta.shape)
        or not DTensorSpec.is_default_device_order(spec.shard_order)
        or max(codes) >= len(spec.tensor_meta.shape)
    ):
        raise TorchDiffers("This tensor is not laid out plainly.")
    return codes


def _without_placement(value: Any) -> TensorMeta | Any:
    return value.tensor_meta if isinstance(value, DTensorSpec) else value


def _output_placements(
    rows: Sequence[Row], sources: Sequence[Codes]
) -> tuple[Placement, ...] | None:
    """Return where the output lies if no input is moved; None where that is no strategy."""
    wanted = set(zip(*sources, strict=True))
    is_sharded = any(max(each) > REPLICATE for each in sources)
    found: dict[Codes, Placement] = {(REPLICATE,) * len(sources): Replicate()}  # torch adds it
    try:
        for output, *inputs in rows:
            if output is None or len(inputs) != len(sources):
                return None
            if not is_sharded and _ShardingPlaceholder in map(type, (output, *inputs)):
                continue  # torch shards as the inputs are sharded, and they are not
            row = tuple([_code(each) for each in inputs])
            if row in wanted:
                found[row] = Shard(output.dim) if type(output) is _ShardingPlaceholder else output
        chosen = tuple([found[each] for each in zip(*sources, strict=True)])
        if not are_of_one_kind([encode(each) for each in chosen]):
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
