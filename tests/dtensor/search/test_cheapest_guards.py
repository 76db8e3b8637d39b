"""The search for the cheapest strategy leaves special cases and errors to torch."""

from contextlib import nullcontext

import pytest
import torch
from outcomes import outcome
from strategies import STRATEGY_FILTER, UPSTREAM, as_schema, aten, tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy
from torch.distributed.tensor._redistribute import use_min_cost_redistribution_plan
from torch.distributed.tensor.placement_types import _MaskPartial, _StridedShard

from planners.dtensor.search.cheapest import cheapest_strategy

pytestmark = pytest.mark.usefixtures("meshes")


class SymbolicSize(int):
    """A size that only behaves like an integer, as the symbolic sizes of torch's tracing do."""


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
def test_torch_keeps_special_cases(meshes, make):
    op_schema, strategies = make(tensor(meshes[2, 4], (64, 64), [Shard(0), Shard(0)]))
    expected = UPSTREAM(meshes[2, 4], op_schema, strategies)
    assert len(expected.strategies) == 4
    assert cheapest_strategy(meshes[2, 4], op_schema, strategies).strategies == expected.strategies


@pytest.mark.parametrize(
    ("context", "options"),
    [
        (use_min_cost_redistribution_plan, {}),
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
    ("strategies", "keywords", "dim"),
    [
        (STRATEGIES, (), 2),  # there is no such tensor dim
        ([], (), 0),
        ([[Replicate(), Replicate()], [Shard(0)]], (), 0),
        ([[Shard(0), Shard(0)], [Replicate(), Replicate(), Replicate()]], (), 0),
        ([[Replicate(), Replicate()], [Shard(0), None]], (), 0),
        ([[Replicate(), Replicate()], [None, Shard(0)]], (), 0),
        ([[Replicate(), Replicate(), Replicate()]], (), 0),
        ([[Replicate(), Replicate()]], ("other",), 0),
        ([[Replicate(), Shard(-1)]], (), 0),
    ],
)
def test_strategies_that_do_not_fit_the_op_raise_the_same_error(meshes, strategies, keywords, dim):
    rows = tensor(meshes[2, 4], (64, 64), [Shard(dim), Shard(0)])
    op_schema = as_schema([rows], **dict.fromkeys(keywords, OpStrategy([OpSpec(rows)])))
    expected = outcome(UPSTREAM, meshes[2, 4], op_schema, strategies)
    assert outcome(cheapest_strategy, meshes[2, 4], op_schema, strategies) == expected
