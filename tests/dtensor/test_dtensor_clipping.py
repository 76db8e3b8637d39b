"""Clipping on local tensors: torch's norm within its rounding, with few collectives."""

from contextlib import contextmanager
from functools import partial
from unittest import mock

import pytest
import torch
from hypothesis import given, strategies as st
from outcomes import outcome
from small_world import mesh_of
from torch.distributed import _functional_collectives
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.nn.utils import clip_grad_norm_
from trainings import Training, Weight, pair

from planners.dtensor.optimizer import clipping

SGD = partial(torch.optim.SGD, lr=0.1)
ON_TWO = [
    Weight((8, 4), (Shard(0), Shard(0))),
    Weight((5, 3), (Replicate(), Shard(1))),
    Weight((6,), (Shard(0), Replicate())),
    Weight((3, 4), (Replicate(), Replicate())),
]


@contextmanager
def equal_ranks():
    """Reduce as if all ranks had this rank's parts; yield the groups of our collectives."""
    reduced = []

    def torchs(tensor, reduceOp, group):  # noqa: N803 - torch's name
        mesh, dimension = group
        return tensor * mesh.size(dimension) if reduceOp == "sum" else tensor.clone()

    def ours(tensor, group):
        reduced.append(group)
        tensor.mul_(group.size())

    with (
        mock.patch.object(_functional_collectives, "all_reduce", torchs),
        mock.patch.object(clipping.dist, "all_reduce", ours),
    ):
        yield reduced


def clipped(training, clip, *limits, **options):
    training.grads()
    total = clip(training.parameters, *limits, **options)
    return total, [parameter.grad.to_local() for parameter in training.parameters]


@given(
    weights=st.lists(st.sampled_from(ON_TWO), min_size=1, max_size=6),
    norm_type=st.sampled_from([2, 2.0, 1, 3.0, float("inf"), 0]),
    max_norm=st.sampled_from([1e-3, 1.0, 1e9]),
    foreach=st.sampled_from([None, True, False]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_norms_and_gradients_are_torchs_within_rounding(
    weights, norm_type, max_norm, foreach, dtype
):
    """Any norm of any gradients, and the clipped gradients, are torch's but for rounding."""
    weights = [Weight(each.shape, each.placements, dtype) for each in weights]
    torchs, ours, accelerated = pair(mesh_of(2, 2), weights, SGD)
    limits = (max_norm, norm_type)
    with equal_ranks():
        expected, expected_grads = clipped(torchs, clip_grad_norm_, *limits, foreach=foreach)
        found, grads = clipped(ours, accelerated.clip_grad_norm_, *limits, foreach=foreach)
    assert type(found) is type(expected) is DTensor
    assert (found.placements, found.dtype) == (expected.placements, expected.dtype)
    rtol = 0.05 if dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(found.to_local(), expected.to_local(), rtol=rtol, atol=1e-6)
    torch.testing.assert_close(grads, expected_grads, rtol=rtol, atol=1e-6)


def test_each_mesh_dimension_needs_one_collective_of_its_own_groups():
    """Equal meshes may have other process groups, as after the groups were made again."""
    earlier, later = mesh_of(2, 3), mesh_of(2, 3)
    assert earlier == later
    _, _, accelerated = pair(earlier, ON_TWO, SGD)
    for mesh in (earlier, later):
        with equal_ranks() as reduced:
            total, _ = clipped(Training(mesh, ON_TWO * 3, SGD), accelerated.clip_grad_norm_, 1.0)
        assert total.device_mesh is mesh
        assert reduced == [mesh.get_group(dimension) for dimension in range(2)]


def test_a_norm_that_is_not_finite_is_torchs_error():
    """With `error_if_nonfinite`, an infinite gradient raises the error that torch raises."""
    torchs, ours, accelerated = pair(mesh_of(2, 2), ON_TWO, SGD)
    for training in (torchs, ours):
        training.grads()
        training.parameters[0].grad.fill_(float("inf"))
    expected, found = (
        outcome(clip, training.parameters, 1.0, error_if_nonfinite=True)
        for training, clip in ((torchs, clip_grad_norm_), (ours, accelerated.clip_grad_norm_))
    )
    assert found == expected
    assert expected[0] is RuntimeError


@pytest.mark.parametrize("kind", ["partial", "plain", "none", "empty", "equal meshes"])
def test_other_gradients_are_left_to_torch(kind):
    """Partial, plain or no gradients, and those on two meshes, are clipped by torch's function."""
    mesh = mesh_of(2, 2)
    torchs, ours, accelerated = pair(mesh, ON_TWO[:1], SGD)
    found = []
    for training, clip in ((torchs, clip_grad_norm_), (ours, accelerated.clip_grad_norm_)):
        training.grads()
        parameters = list(training.parameters)
        if kind == "partial":
            parameters[0].grad = Weight((8, 4), (Partial(), Shard(0))).tensor(mesh)
        elif kind == "plain":
            parameters = [torch.nn.Parameter(torch.ones(3))]
            parameters[0].grad = torch.ones(3)
        elif kind == "none":
            parameters[0].grad = None
        elif kind == "empty":
            parameters = []
        else:  # equal meshes may have groups of two kinds
            parameters += Training(mesh_of(2, 2), ON_TWO[:1], SGD).parameters
            parameters[1].grad = ON_TWO[0].tensor(mesh_of(2, 2))
        found.append(float(clip(parameters, 1.0)))
    assert found[1] == found[0]
