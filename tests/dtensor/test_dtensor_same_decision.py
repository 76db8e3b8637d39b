"""Variants that must make torch's decisions make them, in single ops and in training."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from outcomes import described
from sharded_models import sharded_model
from small_world import EVERYWHERE, checked, mesh_of, problem_of, running
from torch.distributed.tensor.placement_types import _StridedShard

from planners.dtensor import FAMILY
from planners.dtensor.cache.interned import InternedDispatch
from planners.dtensor.cache.shape_class import ShapeClass
from planners.dtensor.dispatch.base import Dispatch

pytestmark = pytest.mark.usefixtures("few_rounds")

PROBLEMS = (
    "ops/dgx_a100_80gb:8",
    "ops[dims=2]/dgx_a100_80gb:8",
    "mlp/dgx_a100_80gb:8",
    "transformer-block/dgx_a100_80gb:4",
    "miss[dims=2]/dgx_a100_80gb:16",
    "miss[dims=1,cases=12]/dgx_a100_80gb:8",
    "miss[dims=2,cases=12,seed=3]/dgx_a100_80gb:4",
    "dynamic/dgx_a100_80gb:8",
    "dynamic[dims=2]/dgx_a100_80gb:16",
    "optimizer[impl=single,params=3]/dgx_a100_80gb:8",
    "optimizer[impl=foreach,params=3]/dgx_a100_80gb:8",
    "optimizer[impl=fused,params=3,dims=2]/dgx_a100_80gb:8",
    "optimizer[rule=sgd,params=6,clip=norm]/dgx_a100_80gb:8",
)


def _variants_like_upstream() -> list[str]:
    upstream = FAMILY.find("upstream")
    same = [other for other in FAMILY.variants.values() if upstream in FAMILY.models_of(other)]
    return [variant.name for variant in (*FAMILY.models_of(upstream), *same)]


@pytest.fixture(scope="module", params=PROBLEMS)
def problem(request):
    problem = problem_of(request.param)
    # The objects that fifty steps keep are no part of a decision.
    return replace(problem, program=replace(problem.program, counts_kept=False))


@pytest.fixture(scope="module")
def upstream(problem) -> str:
    return checked("upstream", problem).fingerprint


@pytest.mark.parametrize("variant", _variants_like_upstream())
def test_it_decides_as_torch_does(variant, problem, upstream):
    if variant not in EVERYWHERE and problem.program.optimizer is None:
        pytest.skip("there is no optimizer")
    assert checked(variant, problem).fingerprint == upstream


def test_dijkstra_alone_decides_for_itself():
    own = set(FAMILY.variants) - {"upstream", *_variants_like_upstream()}
    assert own == {"dijkstra"}


def _trained(dispatch: Dispatch, *shape: int, **options: bool) -> tuple[list[Any], int]:
    """Train a model; return its description without values, and the late cache misses."""
    mesh = mesh_of(*shape)
    with running(dispatch):
        model = sharded_model(mesh)
        optimizer = torch.optim.AdamW(model.parameters(), **options)
        norms, misses = [], []
        for rows in (4, 4, 6, 4, 6):
            model(torch.arange(rows)).pow(2).mean().backward()
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
            before = dispatch.cache_info().misses
            optimizer.step()
            misses.append(dispatch.cache_info().misses - before)
            optimizer.zero_grad()
        if type(dispatch) is not Dispatch:
            assert dispatch.cache_info().hits > 0
        weights = list(model.parameters())
        states = [[*optimizer.state[weight].values()] for weight in weights]
        if mesh.ndim == 2:
            assert any(_StridedShard(0, split_factor=2) in weight.placements for weight in weights)
        return described([*weights, *states, *norms], False), sum(misses[1:])


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((4,), {"foreach": False}),
        ((4,), {"foreach": True}),
        ((4,), {"fused": True}),
        ((2, 2), {}),
    ],
)
def test_a_fully_sharded_model_trains_by_recipes_with_torchs_placements(shape, options):
    expected, _ = _trained(Dispatch(), *shape, **options)
    for dispatch in (InternedDispatch(), ShapeClass()):
        found, late_misses = _trained(dispatch, *shape, **options)
        assert found == expected
        if len(shape) == 1:  # torch keeps the ops on strided shards
            assert late_misses == 0
