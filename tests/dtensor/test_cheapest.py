"""The cheapest strategy: torch's own choice, of real ops and of made-up strategies."""

import math
from collections import Counter
from contextlib import nullcontext
from inspect import signature
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor import _collective_utils as prices
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy
from torch.distributed.tensor._ops import utils
from torch.distributed.tensor._redistribute import use_min_cost_redistribution_plan
from torch.distributed.tensor._sharding_prop import _select_min_cost_strategy
from torch.distributed.tensor.placement_types import _MaskPartial, _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

from planners.dtensor.search.cheapest import (
    cheapest_strategy,
    encode,
    operand_of,
    searched_exactly,
)

aten = torch.ops.aten

SHAPES = ((4,), (2, 4), (2, 2, 2))
REDUCE_OPS = ("sum", "avg", "max")
UPSTREAM = utils.expand_to_full_mesh_op_strategy
(STRATEGY_FILTER,) = {  # its names, by release of torch
    "is_valid_strategy_cb",
    "full_mesh_strategy_filter",
}.intersection(signature(UPSTREAM).parameters)


@pytest.fixture(scope="module", autouse=True)
def meshes():
    """Meshes by shape, in a world of 16 ranks of which this process plays the first."""
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group(backend="fake", rank=0, world_size=16, store=FakeStore())
    yield {shape: init_device_mesh("cpu", shape) for shape in SHAPES}
    dist.destroy_process_group()


def tensor(mesh, shape, placements, dtype=torch.float32):
    empty = torch.empty(shape, dtype=dtype, device="meta")
    meta = TensorMeta(empty.shape, empty.stride(), empty.dtype)
    return DTensorSpec(mesh, tuple(placements), tensor_meta=meta)


def placements(dims, reduce_ops=REDUCE_OPS):
    """Placements on one mesh dim of a tensor with so many dims."""
    shards = [Shard(dim) for dim in range(dims)]
    return st.sampled_from([Replicate(), *shards, *map(Partial, reduce_ops)])


SIZES = st.sampled_from([1, 2, 3, 5, 8, 16, 64, 1000])


@st.composite
def tensors(draw, mesh, shape):
    kinds = placements(len(shape), draw(st.sampled_from([("sum",), ("sum", "avg"), ("max",)])))
    return tensor(mesh, shape, [draw(kinds) for _ in range(mesh.ndim)])


def matrices(draw):
    """Return the sizes of a batch of products (B, M, K) x (B, K, N)."""
    return [draw(SIZES) for _ in range(4)]


def _mm(draw, new, b, m, k, n):
    return aten.mm.default, (new(m, k), new(k, n))


def _addmm(draw, new, b, m, k, n):
    bias = draw(st.sampled_from([(m, n), (n,), (1, n)]))
    return aten.addmm.default, (new(*bias), new(m, k), new(k, n))


def _bmm(draw, new, b, m, k, n):
    return aten.bmm.default, (new(b, m, k), new(b, k, n))


def _pointwise(draw, new, b, m, k, n):
    op = draw(st.sampled_from([aten.mul.Tensor, aten.add.Tensor, aten.maximum.default]))
    return op, (new(m, n), new(*draw(st.sampled_from([(m, n), (n,), (m, 1)]))))


def _in_place(draw, new, b, m, k, n):
    op = draw(st.sampled_from([aten.add_.Tensor, aten.mul_.Tensor]))
    return op, (new(m, n), new(m, n))


def _unary(draw, new, b, m, k, n):
    ops = [aten.relu.default, aten.neg.default, aten.clone.default, aten.relu_.default]
    return draw(st.sampled_from(ops)), (new(b, m, n),)


def _foreach(draw, new, b, m, k, n):
    op = draw(st.sampled_from([aten._foreach_add.List, aten._foreach_mul_.List]))
    return op, ([new(m, n), new(b, k)], [new(m, n), new(b, k)])


def _layer_norm_backward(draw, new, b, m, k, n):
    grad, x, mean, deviation = new(b, m, n), new(b, m, n), new(b, m, 1), new(b, m, 1)
    masks = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    weights = new(n), new(n)
    return (
        aten.native_layer_norm_backward.default,
        (grad, x, [n], mean, deviation, *weights, list(masks)),
    )


OPS = [_mm, _addmm, _bmm, _pointwise, _in_place, _unary, _foreach, _layer_norm_backward]


def schema(draw, mesh, make):
    def new(*shape):
        return draw(tensors(mesh, shape))

    op, arguments = make(draw, new, *matrices(draw))
    return OpSchema(op, arguments, {})


def outcome(function, *arguments, **options):
    """Return what a call returns, or the error that it raises."""
    try:
        return function(*arguments, **options)
    except Exception as error:
        return type(error), str(error)


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


@pytest.mark.parametrize("make", OPS)
@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=8)
@given(data=st.data())
def test_ops_propagate_as_in_torch(meshes, shape, make, data):
    op_schema = schema(data.draw, meshes[shape], make)
    expected = outcome(propagated, op_schema)
    with searched_exactly():
        assert outcome(propagated, op_schema) == expected


def test_an_in_place_op_that_no_strategy_serves_raises_the_same_error(meshes):
    mesh = meshes[2, 2, 2]
    own = tensor(mesh, (8, 8), [Partial(), Shard(0), Replicate()])
    op_schema = OpSchema(aten.relu_.default, (own,), {})
    expected = outcome(propagated, op_schema)
    with searched_exactly():
        assert outcome(propagated, op_schema) == expected
    assert expected[0] is RuntimeError


@st.composite
def made_up(draw, meshes):
    """Strategies of any op: outputs, some of them without placements, and inputs of any shape."""
    mesh = meshes[draw(st.sampled_from(SHAPES))]
    shapes = draw(st.lists(st.lists(SIZES, min_size=1, max_size=2), min_size=1, max_size=3))
    outputs = draw(st.integers(0, 2))
    kinds = placements(2, draw(st.sampled_from([REDUCE_OPS, ("sum",), ()])))
    columns = [kinds] * outputs + [placements(len(shape), ("sum", "max")) for shape in shapes]
    if outputs:
        columns[draw(st.integers(0, outputs - 1))] = kinds | st.none()
    strategies = draw(st.lists(st.tuples(*columns).map(list), min_size=1, max_size=6))
    inputs = [
        tensor(mesh, shape, [draw(placements(len(shape))) for _ in range(mesh.ndim)])
        for shape in shapes
    ]
    return mesh, inputs, strategies, outputs


def as_schema(inputs, **keyword_arguments):
    strategies = tuple(OpStrategy([OpSpec(each)]) for each in inputs)
    return OpSchema(aten.add.Tensor, strategies, keyword_arguments)


def chosen(strategy, inputs):
    """Return what torch chooses for an op, and for an element of a foreach op."""
    by_rule = [SimpleNamespace(args_spec=tuple(inputs)), None]
    specs = [_select_min_cost_strategy(strategy, each) for each in by_rule]
    return [(each.output_specs, each.input_specs, each.redistribute_cost) for each in specs]


@given(data=st.data(), inplace_op=st.booleans(), uneven=st.booleans())
def test_the_choice_among_made_up_strategies_is_torchs(meshes, data, inplace_op, uneven):
    mesh, inputs, strategies, outputs = data.draw(made_up(meshes))
    meta = tensor(mesh, (4,), [Replicate()] * mesh.ndim).tensor_meta
    options = {
        "input_index": outputs,
        "inplace_op": inplace_op,
        "allow_uneven_sharding": uneven,
        "output_tensor_meta": data.draw(st.sampled_from([None, meta, (meta,), (None, meta)])),
    }

    def choose(expand):
        return chosen(expand(mesh, as_schema(inputs), strategies, **options), inputs)

    assert outcome(choose, cheapest_strategy) == outcome(choose, UPSTREAM)


def test_where_torchs_two_rules_differ_both_choices_are_kept(meshes):
    inputs = [tensor(meshes[4,], (8,), [Replicate()])]
    strategies = [[Shard(0), Shard(0)], [Replicate(), Replicate()], [Partial(), Replicate()]]
    strategy = cheapest_strategy(meshes[4,], as_schema(inputs), strategies)
    assert [each.output_spec.placements for each in strategy.strategies] == [
        (Shard(0),),
        (Partial(),),
    ]


@given(data=st.data())
def test_costs_are_torchs_to_the_last_bit(meshes, data):
    mesh = meshes[data.draw(st.sampled_from(SHAPES))]
    shape = data.draw(st.lists(SIZES, min_size=1, max_size=3))
    kinds = st.tuples(*[placements(len(shape))] * mesh.ndim)
    source, target = (tensor(mesh, shape, data.draw(kinds)) for _ in range(2))
    operand = operand_of(source, mesh, targets=(), may_stay=False)
    cost = operand.cost(tuple(map(encode, target.placements)))
    assert cost == prices.redistribute_cost(source, target)


@given(data=st.data())
def test_no_cost_is_below_its_bound(meshes, data):
    mesh = meshes[data.draw(st.sampled_from(SHAPES))]
    shape = data.draw(st.lists(SIZES, min_size=1, max_size=2))
    kinds = placements(len(shape))
    targets = data.draw(st.lists(kinds, min_size=mesh.ndim, max_size=mesh.ndim))
    source = tensor(mesh, shape, [data.draw(kinds) for _ in range(mesh.ndim)])
    codes = tuple(map(encode, targets))
    operand = operand_of(source, mesh, codes, may_stay=False)
    bound = sum(operand.least_costs()[index][index] for index in range(mesh.ndim))
    cost = operand.cost(codes)
    assert bound == cost == math.inf or bound <= cost * (1 + 1e-12)


@pytest.fixture
def priced(monkeypatch):
    """How often torch is asked for the price of a collective."""
    asked = Counter()

    def counted(price):
        def ask(*arguments):
            asked["collectives"] += 1
            return price(*arguments)

        return ask

    for name in ("allgather_cost", "allreduce_cost", "reduce_scatter_cost"):
        monkeypatch.setattr(prices, name, counted(getattr(prices, name)))
    return asked


def test_few_combinations_are_priced(meshes, priced):
    mesh = meshes[2, 2, 2]
    left = tensor(mesh, (64, 64), [Partial(), Shard(1), Shard(1)])
    right = tensor(mesh, (64, 64), [Shard(0)] * 3)
    op_schema = OpSchema(aten.mm.default, (left, right), {})
    expected = propagated(op_schema)
    exhaustive = priced.pop("collectives")
    with searched_exactly():
        assert propagated(op_schema) == expected
    assert 0 < priced["collectives"] < exhaustive / 10


def test_nothing_is_priced_where_nothing_moves(meshes, priced):
    mesh = meshes[2, 2, 2]
    rows = tensor(mesh, (64, 64), [Shard(0)] * 3)
    whole = tensor(mesh, (64, 64), [Replicate()] * 3)
    with searched_exactly():
        output, is_moved, *_ = propagated(OpSchema(aten.mm.default, (rows, whole), {}))
    assert (output.placements, is_moved, priced.total()) == (rows.placements, False, 0)


class SymbolicSize(int):
    """A size that is not quite an integer, as those that torch traces with."""


STRATEGIES = [[Replicate(), Replicate()], [Shard(0), Shard(0)]]


def strided(rows):
    placements = (_StridedShard(0, split_factor=4), Shard(0))
    return as_schema([DTensorSpec(rows.mesh, placements, rows.tensor_meta)]), STRATEGIES


def ordered(rows):
    order = (ShardOrderEntry(tensor_dim=0, mesh_dims=(1, 0)),)
    spec = DTensorSpec(rows.mesh, rows.placements, rows.tensor_meta, order)
    return as_schema([spec]), STRATEGIES


def symbolic(rows):
    meta = rows.tensor_meta._replace(shape=(SymbolicSize(64), 64))
    return as_schema([DTensorSpec(rows.mesh, rows.placements, meta)]), STRATEGIES


def elsewhere(rows):
    other = DeviceMesh("cpu", torch.arange(8, 16).reshape(2, 4))
    return as_schema([DTensorSpec(other, rows.placements, rows.tensor_meta)]), STRATEGIES


def undecided(rows):
    either = OpStrategy([OpSpec(rows), OpSpec(rows)])
    return OpSchema(aten.relu.default, (either,), {}), STRATEGIES


def keyword(rows):
    wanted = [[output, given, given] for output, given in STRATEGIES]
    return as_schema([rows], other=OpStrategy([OpSpec(rows)])), wanted


def masked(rows):
    return as_schema([rows]), [[_MaskPartial(), Shard(0)], *STRATEGIES[:1]]


@pytest.mark.parametrize(
    "make", [strided, ordered, symbolic, elsewhere, undecided, keyword, masked]
)
def test_torch_keeps_what_it_alone_deals_with(meshes, make):
    op_schema, strategies = make(tensor(meshes[2, 4], (64, 64), [Shard(0), Shard(0)]))
    expected = UPSTREAM(meshes[2, 4], op_schema, strategies)
    assert len(expected.strategies) == 4
    assert cheapest_strategy(meshes[2, 4], op_schema, strategies).strategies == expected.strategies


@pytest.mark.parametrize(
    ("context", "options"),
    [
        (use_min_cost_redistribution_plan, {}),
        (FakeTensorMode, {}),
        (nullcontext, {STRATEGY_FILTER: lambda inputs, outputs: True}),
    ],
)
def test_torch_keeps_its_other_ways_to_choose(meshes, context, options):
    op_schema = as_schema([tensor(meshes[2, 4], (64, 64), [Shard(0), Shard(0)])])
    with context():
        strategy = cheapest_strategy(meshes[2, 4], op_schema, STRATEGIES, **options)
    assert len(strategy.strategies) == 4


def test_torch_keeps_ranks_that_are_not_in_the_mesh():
    mesh = DeviceMesh("cpu", torch.arange(8, 16).reshape(2, 4))
    op_schema = as_schema([tensor(mesh, (64, 64), [Shard(0), Shard(0)])])
    assert len(cheapest_strategy(mesh, op_schema, STRATEGIES).strategies) == 4


@pytest.mark.parametrize(
    ("strategies", "keywords"),
    [
        ([], ()),
        ([[Replicate(), Replicate()], [Shard(0)]], ()),
        ([[Shard(0), Shard(0)], [Replicate(), Replicate(), Replicate()]], ()),
        ([[Replicate(), Replicate()], [Shard(0), None]], ()),
        ([[Replicate(), Replicate()], [None, Shard(0)]], ()),
        ([[Replicate(), Replicate(), Replicate()]], ()),
        ([[Replicate(), Replicate()]], ("other",)),
        ([[Replicate(), Shard(-1)]], ()),
    ],
)
def test_what_is_not_for_the_op_raises_the_same_error(meshes, strategies, keywords):
    rows = tensor(meshes[2, 4], (64, 64), [Shard(0), Shard(0)])
    op_schema = as_schema([rows], **dict.fromkeys(keywords, OpStrategy([OpSpec(rows)])))
    expected = outcome(UPSTREAM, meshes[2, 4], op_schema, strategies)
    assert outcome(cheapest_strategy, meshes[2, 4], op_schema, strategies) == expected


def test_a_tensor_dim_that_is_not_there_raises_the_same_error(meshes):
    op_schema = as_schema([tensor(meshes[2, 4], (64, 64), [Shard(2), Shard(0)])])
    expected = outcome(UPSTREAM, meshes[2, 4], op_schema, STRATEGIES)
    assert outcome(cheapest_strategy, meshes[2, 4], op_schema, STRATEGIES) == expected


def test_torch_is_left_as_it_was():
    with searched_exactly():
        within = utils.expand_to_full_mesh_op_strategy
        assert within is not UPSTREAM
        with searched_exactly():
            pass
        assert utils.expand_to_full_mesh_op_strategy is within
    assert utils.expand_to_full_mesh_op_strategy is UPSTREAM
    with pytest.raises(ZeroDivisionError), searched_exactly():
        _ = 1 / 0
    assert utils.expand_to_full_mesh_op_strategy is UPSTREAM
