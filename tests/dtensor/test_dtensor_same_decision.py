"""Variants that must decide as torch does, do, and so does training under them."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from captured_steps import Model
from random_programs import described
from small_world import checked, mesh_of, placed, problem_of, running
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
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


def _upstream_and_what_must_equal_it() -> list[str]:
    upstream = FAMILY.find("upstream")
    same = [each for each in FAMILY.variants.values() if upstream in FAMILY.models_of(each)]
    return [each.name for each in (*FAMILY.models_of(upstream), *same)]


@pytest.fixture(scope="module", params=PROBLEMS)
def problem(request):
    problem = problem_of(request.param)
    # What fifty steps keep is no part of a decision.
    return replace(problem, program=replace(problem.program, counts_kept=False))


@pytest.fixture(scope="module")
def upstream(problem) -> str:
    return checked("upstream", problem).fingerprint


@pytest.mark.parametrize("variant", _upstream_and_what_must_equal_it())
def test_it_decides_as_torch_does(variant, problem, upstream):
    assert checked(variant, problem).fingerprint == upstream


def test_dijkstra_alone_decides_for_itself():
    own = set(FAMILY.variants) - {"upstream", *_upstream_and_what_must_equal_it()}
    assert own == {"dijkstra"}


def _trained(dispatch: Dispatch, **options: bool) -> list[bytes]:
    """Return the parameters of a small model after three steps of AdamW."""
    mesh = mesh_of(4)
    generator = torch.Generator().manual_seed(0)
    first, second, batch = (
        torch.randn(shape, generator=generator) for shape in ((8, 4), (4, 8), (6, 8))
    )
    with running(dispatch):
        weights = [
            torch.nn.Parameter(placed(mesh, first, Shard(1))),
            torch.nn.Parameter(placed(mesh, second, Shard(0))),
        ]
        optimizer = torch.optim.AdamW(weights, lr=0.1, **options)
        for rows in (6, 5, 6):
            optimizer.zero_grad()
            hidden = torch.relu(placed(mesh, batch[:rows], Replicate()) @ weights[0])
            (hidden @ weights[1]).pow(2).mean().backward()
            optimizer.step()
        return [each._local_tensor.detach().numpy().tobytes() for each in weights]


@pytest.mark.parametrize("options", [{"foreach": False}, {"fused": True}])
def test_training_ends_with_the_same_bits(options):
    expected = _trained(Dispatch(), **options)
    assert _trained(InternedDispatch(), **options) == expected
    assert _trained(ShapeClass(), **options) == expected


def _trained_in_two_dimensions(dispatch: Dispatch) -> list[Any]:
    """Return all but the values of parameters and norms; values come from fake collectives."""
    mesh = mesh_of(2, 2)
    plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate()),
        "up": ColwiseParallel(),
        "down": RowwiseParallel(),
    }
    with running(dispatch):
        model = fully_shard(parallelize_module(Model(), mesh["middle"], plan), mesh=mesh["outer"])
        optimizer = torch.optim.AdamW(model.parameters())
        norms = []
        for rows in (4, 6, 4):
            optimizer.zero_grad()
            model(torch.arange(rows)).pow(2).mean().backward()
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
            optimizer.step()
        parameters = list(model.parameters())
        assert any(_StridedShard(0, split_factor=2) in each.placements for each in parameters)
        moments = [value for each in parameters for value in optimizer.state[each].values()]
        return [described(each, False) for each in (*parameters, *moments, *norms)]


def test_fully_sharded_tensor_parallel_training_lies_where_it_lies_in_torch():
    expected = _trained_in_two_dimensions(Dispatch())
    assert _trained_in_two_dimensions(InternedDispatch()) == expected
    assert _trained_in_two_dimensions(ShapeClass()) == expected


@pytest.mark.parametrize("impl", ["single", "foreach", "fused"])
def test_a_fully_sharded_module_steps_by_plans_and_lies_where_it_lies_in_torch(impl):
    def trained(dispatch: Dispatch) -> tuple[list[Any], int]:
        mesh = mesh_of(4)
        with running(dispatch):
            torch.manual_seed(0)
            model = Model()
            for part in (model.up, model.down):
                fully_shard(part, mesh=mesh)
            fully_shard(model, mesh=mesh)
            optimizer = torch.optim.AdamW(
                model.parameters(), foreach=impl == "foreach", fused=impl == "fused"
            )
            told, missed = [], []
            for _ in range(5):
                model(torch.arange(4)).pow(2).mean().backward()
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                missed.append(dispatch.cache_info().misses)
                optimizer.step()
                missed.append(dispatch.cache_info().misses)
                told.append(described(norm, False))
                optimizer.zero_grad()
            states = [[*optimizer.state[each].values()] for each in model.parameters()]
            if type(dispatch) is not Dispatch:
                assert dispatch.cache_info().hits > 0
            return [told, described([*model.parameters(), *states], False)], missed[-1] - missed[2]

    expected, _ = trained(Dispatch())
    for dispatch in (InternedDispatch(), ShapeClass()):
        told, missed_later = trained(dispatch)
        assert told == expected
        assert missed_later == 0
