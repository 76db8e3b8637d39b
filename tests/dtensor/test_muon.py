"""Muon on sharded matrices: owners, what is sent, and the same steps as on whole matrices."""

import math
from functools import partial
from unittest import mock

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from gloo import on_ranks
from hypothesis import example, given, strategies as st
from small_world import checked, mesh_of, problem_of
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.distributed.tensor.placement_types import _StridedShard
from torch.optim import AdamW, Muon

from planners.dtensor.optimizer.muon import ELEMENTS, step
from planners.dtensor.optimizer.muon_buckets import (
    Matrix,
    cut_in_buckets,
    group_of,
    matrix_of,
    size_of,
)
from planners.dtensor.optimizer.muon_owners import assigned, least_largest, newton_schulz_flops
from planners.dtensor.programs.matrices import deepseek_v2_lite, gpt2_xl
from planners.dtensor.programs.world import sharded
from shardbench import accelerate_optimizer

SHARD, COPY = Shard(0), Replicate()


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
    """The largest load is that of the owners, between the bound and 4/3 of the least."""
    owners = assigned(costs, ranks)
    best = least(costs, ranks)
    loads = [0] * ranks
    for cost, owner in zip(costs, owners.ranks, strict=True):
        loads[owner] += cost
    assert max(loads) == owners.largest
    assert owners.bound <= best <= owners.largest <= best * 4 / 3


@pytest.mark.parametrize("ranks", [8, 64])
@pytest.mark.parametrize(
    "shapes",
    [
        [(25 * rows, 25 * columns) for rows, columns in gpt2_xl(48)],
        [(64 * rows, 64 * columns) for rows, columns in deepseek_v2_lite(27)],
    ],
)
def test_the_slowest_rank_is_near_the_bound(shapes, ranks):
    """All buckets of two published models together take the slowest ranks at most 2 % longer."""
    costs = [newton_schulz_flops(*shape) for shape in shapes]
    buckets = cut_in_buckets(nowhere(shapes, ranks), 0, ranks, ELEMENTS)
    assert sum(bucket.owners.largest for bucket in buckets) <= 1.02 * least_largest(costs, ranks)


@pytest.mark.parametrize(
    ("mesh_shape", "placements"),
    [((4,), [Shard(0)]), ((4,), [Shard(1)]), ((2, 3), [COPY, SHARD]), ((2, 3), [Shard(1), SHARD]),
     ((2, 3), [SHARD, SHARD])],
)  # fmt: skip
@given(rows=st.integers(1, 13), columns=st.integers(1, 9))
def test_parts_are_where_torch_has_them(mesh_shape, placements, rows, columns):
    """Each rank's part of a matrix is the one that torch computes for its coordinate."""
    mesh = mesh_of(*mesh_shape)
    spec = sharded(mesh, (rows, columns), placements)._spec
    matrix = matrix_of(spec)
    for rank, part in enumerate(matrix.parts):
        coordinate = (mesh.mesh == rank).nonzero()[0].tolist()
        shape, offset = _compute_local_shape_and_global_offset(
            (rows, columns), mesh_shape, coordinate.__getitem__, placements
        )
        assert size_of(part) == shape[0] * shape[1]
        if size_of(part):
            assert tuple(side.start for side in part) == tuple(offset)
    for copy in set(matrix.copy):
        sizes = [
            size_of(part) for part, of in zip(matrix.parts, matrix.copy, strict=True) if of == copy
        ]
        assert sum(sizes) == rows * columns


def test_a_mesh_in_a_part_of_the_world_gets_one_group():
    """Switching on again makes no further process group; a later world has groups of its own."""
    mesh = mesh_of(2, 2, 2)["outer", "middle"]
    group = group_of(mesh)
    assert dist.get_process_group_ranks(group) == [0, 2, 4, 6]
    assert group_of(mesh) is group
    mesh_of(4)
    assert group_of(mesh_of(2, 2, 2)["outer", "middle"]) is not group


def nowhere(shapes, ranks):
    """Return matrices of which no rank has a part."""
    return [Matrix(shape, ((slice(0, 0), slice(0, 0)),) * ranks, (0,) * ranks) for shape in shapes]


FLAT = [(20, 20)] * 3 + [(1, 400)] * 13  # most elements have few of the flops


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=40), st.integers(1, 5))
@example(FLAT, 4)
def test_buckets_are_bounded(shapes, ranks):
    """All ranks have at most their bounds in the mean, and each rank at most twice as much."""
    most = 1600 if shapes == FLAT else 10
    places = []
    matrices = nowhere(shapes, ranks)
    of_all = [cut_in_buckets(matrices, rank, ranks, most) for rank in range(ranks)]
    for bucket in zip(*of_all, strict=True):
        of_ranks = [[math.prod(shape) for shape in of.owned.values()] for of in bucket]
        sizes = [size for of in of_ranks for size in of]
        assert sum(sizes) <= most * ranks or len(sizes) == 1
        assert max(map(sum, of_ranks)) <= 2 * max(most, *sizes)
        places += sorted(place for of in bucket for place in of.owned)
    assert places == list(range(len(shapes)))


def muon(mesh, count, dtype=torch.float32, **options):
    """Return a Muon of `count` matrices in shards, with gradients."""
    weights = [nn.Parameter(sharded(mesh, (8, 6), [SHARD]).to(dtype)) for _ in range(count)]
    for weight in weights:
        weight.grad = weight.detach().clone()
    return Muon(weights, **options)


def test_a_bucket_has_two_collectives_and_is_updated_when_it_is_sent():
    """Updates wait until their bucket is sent, and clipping adds one collective for all."""
    mesh = mesh_of(4)
    optimizer = muon(mesh, 3)
    weights = optimizer.param_groups[0]["params"]
    made = []

    def noted(name, function):
        def called(*args, **options):
            momentum = [state["momentum_buffer"] for state in optimizer.state.values()]
            made.append((name, sum(bool(buffer._local_tensor.any()) for buffer in momentum)))
            return function(*args, **options)

        return mock.patch.object(dist, name, called)

    with (
        accelerate_optimizer(optimizer) as accelerated,
        noted("all_reduce", dist.all_reduce),
        noted("all_to_all_single", dist.all_to_all_single),
    ):
        accelerated._step = partial(step, elements=12)  # a bucket for each matrix
        accelerated.clip_grad_norm_(weights, 1.0)
        optimizer.step()
    names = [name for name, _ in made]
    assert names == ["all_reduce", *["all_to_all_single"] * 6]
    assert [updated for _, updated in made] == [0, 1, 2, 2, 3, 3, 3]


def test_a_rank_sends_its_share_twice():
    """Two collectives are counted, each with an even share; no bound on moves is claimed."""
    problem = problem_of("muon/dgx_h100:8")
    cell = checked("owned", problem)
    sizes = [weight.numel() for weight in problem.program.optimizer.param_groups[0]["params"]]
    assert cell.counters["collectives"] == 2
    assert cell.counters["collective_bytes"] == 2 * sum(sizes) // 8 * 2
    assert cell.quality == {"slowest_rank": 1, "slowest_bound": 1}


def test_torch_steps_what_has_no_parts():
    """A plain matrix, and momentum that torch overwrites, are stepped by torch, and counted."""
    mesh = mesh_of(4)
    optimizer = muon(mesh, 2)
    plain = nn.Parameter(torch.ones(3, 3))
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
    mesh = mesh_of(4)
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


# On real ranks

STEPS = 20
SHAPES = ((8, 6), (5, 16), (3, 3), (1, 7), (16, 2))
PLACEMENTS = {
    1: ((Shard(0),), (Shard(1),), (Replicate(),)),
    2: (
        (Replicate(), Shard(0)),
        (Shard(0), Shard(1)),
        (Shard(0), Shard(0)),
        (_StridedShard(0, split_factor=2), Shard(0)),
    ),
}
OPTIONS = (
    {},
    {"nesterov": False, "weight_decay": 0.0, "ns_steps": 3},
    {"momentum": 0.5, "adjust_lr_fn": "match_rms_adamw", "lr": torch.tensor(0.01)},
)


def split(whole, mesh, placements):
    """Return the DTensor of a matrix, the same on all ranks."""
    if type(placements[0]) is not _StridedShard:
        return distribute_tensor(whole.clone(), mesh, placements)
    first, second = mesh.get_coordinate()
    parts = [*whole.chunk(2)[second].chunk(2), whole[:0]] if second < len(whole.chunk(2)) else ()
    local = parts[min(first, len(parts) - 1)] if parts else whole[:0]
    shape, stride = whole.shape, whole.stride()
    return DTensor.from_local(
        local.clone(), mesh, placements, run_check=False, shape=shape, stride=stride
    )


def check_steps(mesh, options):
    """Step matrices of all shapes and placements, in one bucket and in many."""
    cases = [(shape, of) for shape in SHAPES for of in PLACEMENTS[mesh.ndim]]
    for elements in (40, 10_000):
        torch.manual_seed(0)
        whole = [nn.Parameter(torch.randn(shape)) for shape, _ in cases]
        parts = [
            nn.Parameter(split(w.data, mesh, of)) for w, (_, of) in zip(whole, cases, strict=True)
        ]
        by_torch, ours = Muon(whole, **options), Muon(parts, **options)
        with accelerate_optimizer(ours) as accelerated:
            accelerated._step = partial(step, elements=elements)
            for _ in range(3):
                for w, part, (shape, of) in zip(whole, parts, cases, strict=True):
                    w.grad = torch.randn(shape)
                    part.grad = split(w.grad, mesh, of)
                by_torch.step()
                ours.step()
            assert accelerated.info() == (len(cases), {}), accelerated.info()
        for w, part, (_, of) in zip(whole, parts, cases, strict=True):
            for expected, made in (
                (w.data, part),
                (by_torch.state[w]["momentum_buffer"], ours.state[part]["momentum_buffer"]),
            ):
                assert made.placements == of
                assert torch.equal(made._local_tensor, split(expected, mesh, of)._local_tensor)


def check_tensor_parallel(mesh):
    """Step the matrices of a tensor-parallel model under FSDP2, and compare with whole ones."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 6))
    plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    fully_shard(parallelize_module(model, mesh["shard"], plan), mesh=mesh["copy"])
    parts = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    whole = [nn.Parameter(part.full_tensor()) for part in parts]
    ours, by_torch = Muon(parts), Muon(whole)
    with accelerate_optimizer(ours) as accelerated:
        for _ in range(3):
            model(torch.randn(4, 6)).square().mean().backward()
            for w, part in zip(whole, parts, strict=True):
                w.grad = part.grad.full_tensor()
            ours.step()
            by_torch.step()
            model.zero_grad()
        assert accelerated.info() == (len(parts), {}), accelerated.info()
    assert all(torch.equal(w, p.full_tensor()) for w, p in zip(whole, parts, strict=True))


def train(distribute, folder=None):
    """Return the losses of a training, and the matrices; its state is saved on the way."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 9), nn.LayerNorm(9), nn.Linear(9, 7), nn.Linear(7, 6))
    distribute(model)
    matrices = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim != 2]
    muon, adamw = Muon(matrices, lr=0.02), AdamW(rest, lr=0.01)
    switched = [accelerate_optimizer(each) for each in (muon, adamw) if folder]
    clip = switched[0].clip_grad_norm_ if switched else nn.utils.clip_grad_norm_
    losses = []
    for number in range(STEPS):
        batch = torch.randn(4, 6, generator=torch.Generator().manual_seed(number))
        loss = nn.functional.mse_loss(model(batch), batch.sin())
        loss.backward()
        clip(model.parameters(), 1e9)  # so large that no gradient changes
        muon.step()
        adamw.step()
        model.zero_grad()
        losses.append(loss.item())
        if folder and number == STEPS // 2:
            state = {"muon": get_optimizer_state_dict(model, muon)}
            dcp.save(state, checkpoint_id=folder)
            for each in muon.state.values():
                each["momentum_buffer"].zero_()
            dcp.load(state, checkpoint_id=folder)
            set_optimizer_state_dict(model, muon, state["muon"])
            switched[0].stop()
            switched[0] = accelerate_optimizer(muon)
    if switched:
        assert switched[0].info() == (len(matrices), {}), switched[0].info()
    return losses, [getattr(p, "full_tensor", lambda p=p: p)() for p in matrices]


def compare(rank, folder):
    """Check steps on meshes of one and two dimensions, then trainings under FSDP2 and HSDP."""
    ranks = dist.get_world_size()
    meshes = [init_device_mesh("cpu", (ranks,), mesh_dim_names=("shard",))]
    if ranks == 4:
        meshes.append(init_device_mesh("cpu", (2, 2), mesh_dim_names=("copy", "shard")))
        check_tensor_parallel(meshes[-1])
    losses, matrices = train(lambda model: model)
    for mesh in meshes:
        for options in OPTIONS:
            check_steps(mesh, options)
        place = str(folder / str(mesh.ndim))
        made, trained = train(lambda model, mesh=mesh: fully_shard(model, mesh=mesh), place)
        assert made == losses, (made, losses)
        assert all(map(torch.equal, trained, matrices))


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 4])
def test_muon_on_gloo_is_muon_on_whole_matrices(ranks):
    """Weights, momentum, losses and checkpoints are those of whole matrices, to the last bit."""
    on_ranks(compare, ranks)
