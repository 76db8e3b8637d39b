"""The search for the cheapest strategy chooses as torch does, on real and made-up strategies."""

import math
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from hypothesis import given, settings, strategies as st
from outcomes import outcome
from strategies import REDUCE_OPS, SHAPES, UPSTREAM, as_schema, aten, searched, tensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, _collective_utils as prices
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding
from torch.distributed.tensor._sharding_prop import _select_min_cost_strategy

from planners.dtensor.search.cheapest import cheapest_strategy
from planners.dtensor.search.dispatches import exact_misses
from planners.dtensor.search.operands import encode, operand_of
from planners.dtensor.search.staying import decide_without_redistribution

pytestmark = pytest.mark.usefixtures("meshes")


def placements(dims, reduce_ops=REDUCE_OPS):
    """Draw placements on one mesh dim of a tensor with `dims` dims."""
    shards = [Shard(dim) for dim in range(dims)]
    return st.sampled_from([Replicate(), *shards, *map(Partial, reduce_ops)])


SIZES = st.sampled_from([1, 2, 3, 5, 8, 16, 64, 1000])


@st.composite
def tensors(draw, mesh, shape):
    kinds = placements(len(shape), draw(st.sampled_from([("sum",), ("sum", "avg"), ("max",)])))
    return tensor(mesh, shape, [draw(kinds) for _ in range(mesh.ndim)])


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
    masks = list(draw(st.tuples(st.booleans(), st.booleans(), st.booleans())))
    arguments = (grad, x, [n], mean, deviation, new(n), new(n), masks)
    return aten.native_layer_norm_backward.default, arguments


OPS = [_mm, _addmm, _bmm, _pointwise, _in_place, _unary, _foreach, _layer_norm_backward]


def schema(draw, mesh, make):
    def new(*shape):
        return draw(tensors(mesh, shape))

    op, arguments = make(draw, new, *(draw(SIZES) for _ in "bmkn"))
    return OpSchema(op, arguments, {})


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
    with searched():
        assert outcome(propagated, op_schema) == expected
    with exact_misses():
        assert outcome(propagated, op_schema) == expected


def test_an_in_place_op_that_no_strategy_serves_raises_the_same_error(meshes):
    mesh = meshes[2, 2, 2]
    own = tensor(mesh, (8, 8), [Partial(), Shard(0), Replicate()])
    op_schema = OpSchema(aten.relu_.default, (own,), {})
    expected = outcome(propagated, op_schema)
    with searched():
        assert outcome(propagated, op_schema) == expected
    assert expected[0] is RuntimeError


@st.composite
def made_up(draw, meshes):
    """Draw strategies of an op, for outputs partly without placements and inputs of any shape."""
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


def chosen(strategy, inputs):
    """Return torch's choice of a strategy for an op, and for an element of a foreach op."""
    by_rule = [SimpleNamespace(args_spec=tuple(inputs)), None]
    specs = [_select_min_cost_strategy(strategy, rule) for rule in by_rule]
    return [(spec.output_specs, spec.input_specs, spec.redistribute_cost) for spec in specs]


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
    chosen = [spec.output_spec.placements for spec in strategy.strategies]
    assert chosen == [(Shard(0),), (Partial(),)]


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
    """Return a mock that records the calls of torch's cost functions for collectives."""
    asked = Mock()
    for name in ("allgather_cost", "allreduce_cost", "reduce_scatter_cost"):
        asked.attach_mock(Mock(side_effect=getattr(prices, name)), name)
        monkeypatch.setattr(prices, name, getattr(asked, name))
    return asked


def test_few_combinations_are_priced(meshes, priced):
    mesh = meshes[2, 2, 2]
    left = tensor(mesh, (64, 64), [Partial(), Shard(1), Shard(1)])
    right = tensor(mesh, (64, 64), [Shard(0)] * 3)
    op_schema = OpSchema(aten.mm.default, (left, right), {})
    expected = propagated(op_schema)
    exhaustive = len(priced.mock_calls)
    with searched():
        assert propagated(op_schema) == expected
    assert 0 < len(priced.mock_calls) - exhaustive < exhaustive / 10


def test_nothing_is_priced_where_nothing_moves(meshes, priced):
    mesh = meshes[2, 2, 2]
    rows = tensor(mesh, (64, 64), [Shard(0)] * 3)
    whole = tensor(mesh, (64, 64), [Replicate()] * 3)
    with searched():
        output, is_moved, *_ = propagated(OpSchema(aten.mm.default, (rows, whole), {}))
    assert (output.placements, is_moved, priced.mock_calls) == (rows.placements, False, [])


@pytest.mark.parametrize(
    ("sources", "is_here"),
    [
        (([Shard(0)] * 3, [Replicate()] * 3), True),
        (([Shard(1), Shard(0), Replicate()], [Shard(0), Replicate(), Shard(1)]), True),
        (([Partial(), Shard(0), Replicate()], [Replicate()] * 3), True),
        (([Partial("max"), Shard(0), Replicate()], [Replicate()] * 3), False),
        (([Partial(), Shard(1), Replicate()], [Replicate(), Shard(0), Shard(0)]), False),
        (([Shard(0)] * 3, [Shard(0)] * 3), False),
    ],
)
def test_an_op_that_moves_nothing_is_decided_without_redistribution(meshes, sources, is_here):
    mesh = meshes[2, 2, 2]
    operands = tuple(tensor(mesh, (64, 64), source) for source in sources)
    op_schema = OpSchema(aten.mm.default, operands, {})
    expected = propagated(op_schema)
    found = decide_without_redistribution(op_schema)
    assert (found is not None) is is_here is not expected[1]
    if found is not None:
        assert found == OutputSharding(expected[0])


@pytest.mark.parametrize("rows", [3, 8])
def test_shards_without_elements_are_left_to_torch(meshes, rows):
    left = tensor(meshes[2, 2, 2], (rows, 8), [Shard(0)] * 3)
    right = tensor(meshes[2, 2, 2], (8, 8), [Replicate()] * 3)
    assert (
        decide_without_redistribution(OpSchema(aten.mm.default, (left, right), {})) is None
    ) is (rows < 8)
