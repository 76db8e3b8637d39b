"""The search for the cheapest strategy chooses as torch does, and leaves special cases to torch."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from inspect import signature
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings, strategies as st
from outcomes import outcome
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy
from torch.distributed.tensor._ops import utils
from torch.distributed.tensor._redistribute import use_min_cost_redistribution_plan
from torch.distributed.tensor.placement_types import _MaskPartial, _StridedShard

from planners.dtensor.programs.world import start_world
from planners.dtensor.search import staying
from planners.dtensor.search.cheapest import cheapest_strategy
from planners.dtensor.search.dispatches import exact_misses

pytestmark = pytest.mark.usefixtures("meshes")

aten = torch.ops.aten

SHAPES = ((4,), (2, 4), (2, 2, 2))
REDUCE_OPS = ("sum", "avg", "max")
SIZES = st.sampled_from([1, 2, 3, 5, 8, 16, 64, 1000])
UPSTREAM = utils.expand_to_full_mesh_op_strategy
(STRATEGY_FILTER,) = {  # its names, by release of torch
    "is_valid_strategy_cb",
    "full_mesh_strategy_filter",
}.intersection(signature(UPSTREAM).parameters)


@pytest.fixture(scope="module")
def meshes() -> Iterator[dict[tuple[int, ...], DeviceMesh]]:
    """Return meshes by shape, in a world of 16 ranks; this process is the first rank."""
    if dist.is_initialized():
        dist.destroy_process_group()
    start_world(16)
    yield {shape: init_device_mesh("cpu", shape) for shape in SHAPES}
    dist.destroy_process_group()


def tensor(mesh, shape, placements):
    empty = torch.empty(shape, device="meta")
    meta = TensorMeta(empty.shape, empty.stride(), empty.dtype)
    return DTensorSpec(mesh, tuple(placements), tensor_meta=meta)


def as_schema(inputs):
    strategies = tuple(OpStrategy([OpSpec(spec)]) for spec in inputs)
    return OpSchema(aten.add.Tensor, strategies, {})


@contextmanager
def searched() -> Iterator[None]:
    """Search the cheapest strategy of every op, also of ops that need no redistribution."""
    decides_none = mock.patch.object(staying, "decide_without_redistribution", return_value=None)
    with decides_none, exact_misses():
        yield


def placements(dims, reduce_ops=REDUCE_OPS):
    """Draw placements on one mesh dim of a tensor with `dims` dims."""
    shards = [Shard(dim) for dim in range(dims)]
    return st.sampled_from([Replicate(), *shards, *map(Partial, reduce_ops)])


def propagated(op_schema):
    propagator = DTensor._op_dispatcher.sharding_propagator
    sharding = propagator.propagate_op_sharding_non_cached(op_schema)
    moved = sharding.redistribute_schema
    return (
        sharding.output_spec,
        sharding.needs_redistribute,
        sharding.use_val_from_redistribute_schema,
        moved and (moved.op, moved.args_schema, moved.kwargs_schema),
    )


# Ops and their arguments, by a function `new` that draws a tensor of a shape, and four sizes.
OPS = {
    "mm": lambda new, b, m, k, n: (aten.mm.default, (new(m, k), new(k, n))),
    "addmm": lambda new, b, m, k, n: (aten.addmm.default, (new(1, n), new(m, k), new(k, n))),
    "bmm": lambda new, b, m, k, n: (aten.bmm.default, (new(b, m, k), new(b, k, n))),
    "mul": lambda new, b, m, k, n: (aten.mul.Tensor, (new(m, n), new(m, 1))),
    "maximum": lambda new, b, m, k, n: (aten.maximum.default, (new(m, n), new(n))),
    "in place": lambda new, b, m, k, n: (aten.add_.Tensor, (new(m, n), new(m, n))),
    "relu": lambda new, b, m, k, n: (aten.relu.default, (new(b, m, n),)),
    "foreach": lambda new, b, m, k, n: (
        aten._foreach_add.List,
        ([new(m, n), new(b, k)], [new(m, n), new(b, k)]),
    ),
    "layer norm": lambda new, b, m, k, n: (
        aten.native_layer_norm_backward.default,
        (
            *(new(b, m, n), new(b, m, n), [n], new(b, m, 1), new(b, m, 1)),
            *(new(n), new(n), [True, True, m > 2]),
        ),
    ),
}


def changed(spec, **changes):
    fields = {"mesh": spec.mesh, "placements": spec.placements, "tensor_meta": spec.tensor_meta}
    return DTensorSpec(**{**fields, **changes})


# Operands whose costs depend on more than placements and sizes, so that torch searches.
SPECIAL = (
    lambda rows: changed(rows, placements=(_StridedShard(0, split_factor=4), Shard(0))),
    lambda rows: changed(rows, placements=(_MaskPartial(), Shard(0))),
    lambda rows: changed(rows, shard_order=(ShardOrderEntry(tensor_dim=0, mesh_dims=(1, 0)),)),
    lambda rows: changed(rows, mesh=DeviceMesh("cpu", torch.arange(8, 16).reshape(2, 4))),
)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=8)
@given(data=st.data())
def test_ops_propagate_as_in_torch(meshes, shape, op, data):
    """Any inputs have torch's decision, by the search alone and by all that decides a miss."""
    mesh, sizes = meshes[shape], [data.draw(SIZES) for _ in "bmkn"]

    def new(*shape):
        if mesh.ndim == 2 and data.draw(st.integers(0, 5)) == 0:
            return data.draw(st.sampled_from(SPECIAL))(tensor(mesh, shape, [Shard(0)] * 2))
        reduce_ops = data.draw(st.sampled_from([("sum",), ("sum", "avg"), ("max",)]))
        kinds = placements(len(shape), reduce_ops)
        return tensor(mesh, shape, [data.draw(kinds) for _ in range(mesh.ndim)])

    op_schema = OpSchema(*OPS[op](new, *sizes), {})
    expected = outcome(propagated, op_schema)
    with searched():
        assert outcome(propagated, op_schema) == expected
    with exact_misses():
        assert outcome(propagated, op_schema) == expected


# Other ways to choose

STRATEGIES = [[Replicate(), Replicate()], [Shard(0), Shard(0)]]


@pytest.mark.parametrize(
    ("context", "options", "first_rank"),
    [
        (use_min_cost_redistribution_plan, {}, 0),
        (nullcontext, {STRATEGY_FILTER: lambda inputs, outputs: True}, 0),
        (nullcontext, {}, 8),  # this rank is not in the mesh
    ],
)
def test_torch_keeps_its_other_ways_to_choose(meshes, context, options, first_rank):
    """Other plans of torch, filters, and ranks outside of the mesh get all strategies."""
    mesh = DeviceMesh("cpu", torch.arange(first_rank, first_rank + 8).reshape(2, 4))
    op_schema = as_schema([tensor(mesh, (64, 64), [Shard(0), Shard(0)])])
    with context():
        strategy = cheapest_strategy(mesh, op_schema, STRATEGIES, **options)
    assert len(strategy.strategies) == 4
