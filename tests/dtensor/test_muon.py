"""Muon on sharded matrices: owners, what is sent, and the same steps as on whole matrices."""

import random

import pytest
import torch
from hypothesis import given, strategies as st
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset

from planners.dtensor.optimizer.muon_layout import buckets_of, group_of, matrix_of
from planners.dtensor.optimizer.muon_owners import assigned, newton_schulz_flops
from planners.dtensor.programs.matrices import deepseek_v2_lite, gpt2_xl
from planners.dtensor.programs.world import make_mesh
from shardbench import accelerate_optimizer

SHARD, COPY = Shard(0), Replicate()


def loads(costs, owners, ranks):
    """Return the sum of each rank's costs."""
    return [
        sum(c for c, owner in zip(costs, owners, strict=True) if owner == rank)
        for rank in range(ranks)
    ]


def least(costs, ranks):
    """Return the least largest load, by trying every assignment."""
    if not costs:
        return 0
    sums = {tuple([0] * ranks)}
    for cost in costs:
        sums = {
            tuple(sorted((*of[:at], of[at] + cost, *of[at + 1 :])))
            for of in sums
            for at in range(ranks)
        }
    return min(map(max, sums))


@given(st.lists(st.integers(1, 60), max_size=9), st.integers(1, 4))
def test_every_matrix_has_an_owner_and_no_assignment_is_below_the_bound(costs, ranks):
    """The largest load is that of the owners, and lies between the bound and twice the least."""
    owners = assigned(costs, ranks)
    best = least(costs, ranks)
    assert max(loads(costs, owners.ranks, ranks), default=0) == owners.largest
    assert owners.bound <= best <= owners.largest <= best * 4 / 3


@pytest.mark.parametrize("ranks", [8, 64])
@pytest.mark.parametrize("shapes", [list(gpt2_xl(48)), list(deepseek_v2_lite(27))])
def test_the_slowest_rank_is_near_the_bound(shapes, ranks):
    """The matrices of two published models are owned within 2 % of the bound."""
    owners = assigned([newton_schulz_flops(*shape) for shape in shapes], ranks)
    assert owners.largest <= 1.02 * owners.bound


@pytest.mark.parametrize(
    ("mesh_shape", "placements"),
    [((4,), [Shard(0)]), ((4,), [Shard(1)]), ((2, 3), [COPY, SHARD]), ((2, 3), [Shard(1), SHARD]),
     ((2, 3), [SHARD, SHARD])],
)  # fmt: skip
@given(rows=st.integers(1, 13), columns=st.integers(1, 9))
def test_parts_are_where_torch_has_them(mesh_shape, placements, rows, columns):
    """Each rank's part of a matrix is the one that torch computes for its coordinate."""
    mesh = make_mesh(mesh_shape, ("a", "b")[: len(mesh_shape)])
    spec = empty(mesh, placements, rows, columns)._spec
    matrix = matrix_of(spec, group_of(mesh))
    for rank, part in enumerate(matrix.parts):
        coordinate = (mesh.mesh == rank).nonzero()[0].tolist()
        shape, offset = _compute_local_shape_and_global_offset(
            (rows, columns), mesh_shape, coordinate.__getitem__, placements
        )
        assert part.size == shape[0] * shape[1]
        if part.size:
            assert (part.rows.start, part.columns.start) == tuple(offset)
    for copy in set(matrix.copy):
        sizes = [
            part.size for part, of in zip(matrix.parts, matrix.copy, strict=True) if of == copy
        ]
        assert sum(sizes) == rows * columns


def empty(mesh, placements, *shape, dtype=torch.float32):
    """Return a DTensor of ones with rank 0's part."""
    local, _ = _compute_local_shape_and_global_offset(
        shape, tuple(mesh.shape), lambda _: 0, placements
    )
    return DTensor.from_local(
        torch.ones(local, dtype=dtype), mesh, placements, run_check=False,
        shape=torch.Size(shape), stride=(shape[1], 1),
    )  # fmt: skip


def test_buckets_are_bounded():
    """A bucket has at most the elements that ranks may have in the mean, or one large matrix."""
    mesh = make_mesh((4,), ("a",))
    rng = random.Random(0)
    shapes = [(rng.randint(1, 9), rng.randint(1, 9)) for _ in range(40)]
    specs = (empty(mesh, [SHARD], *shape)._spec for shape in shapes)
    matrices = [matrix_of(spec, group_of(mesh)) for spec in specs]
    buckets = buckets_of(matrices, 4, most=10)
    assert [place for bucket in buckets for place in bucket.places] == list(range(40))
    for bucket in buckets:
        sizes = [rows * columns for (rows, columns), *_ in bucket.matrices]
        assert sum(sizes) <= 40 or len(sizes) == 1


def muon(mesh, count, dtype=torch.float32, **options):
    """Return a Muon of `count` matrices in shards, with gradients."""
    matrices = [empty(mesh, [SHARD], 8, 6, dtype=dtype) for _ in range(count)]
    weights = list(map(torch.nn.Parameter, matrices))
    for weight in weights:
        weight.grad = empty(mesh, [SHARD], 8, 6, dtype=dtype)
    return torch.optim.Muon(weights, **options)


def test_torch_steps_what_has_no_parts():
    """A plain matrix, and momentum that torch overwrites, are stepped by torch, and counted."""
    mesh = make_mesh((4,), ("a",))
    optimizer = muon(mesh, 2)
    plain = torch.nn.Parameter(torch.ones(3, 3))
    plain.grad = torch.ones(3, 3)
    optimizer.param_groups[0]["params"].append(plain)
    with accelerate_optimizer(optimizer) as accelerated:
        optimizer.step()
        info = accelerated.info()
    assert info.local == 2
    assert sum(info.by_torch.values()) == 1
    assert not torch.equal(plain, torch.ones(3, 3))
    half = muon(mesh, 1, torch.bfloat16, nesterov=False)
    with accelerate_optimizer(half) as accelerated:
        half.step()
        assert accelerated.info().local == 0


def test_versions_rise_as_in_torch():
    """Autograd sees the same changes of a weight and its momentum as after torch's step."""
    mesh = make_mesh((4,), ("a",))
    versions = []
    for accelerated in (False, True):
        optimizer = muon(mesh, 1)
        weight = optimizer.param_groups[0]["params"][0]
        switched = accelerate_optimizer(optimizer) if accelerated else None
        optimizer.step()
        optimizer.step()
        momentum = optimizer.state[weight]["momentum_buffer"]
        versions.append((weight._version, momentum._version))
        if switched:
            switched.stop()
            optimizer.step()
            assert weight._version > versions[-1][0]
    assert versions[0] == versions[1]
