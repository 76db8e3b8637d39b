"""Variants decide as torch does, restore its state, and replace an optimizer's step exactly."""

from dataclasses import replace

import pytest
import torch
from small_world import EVERYWHERE, checked, counted, mesh_of, placed, problem_of
from torch.distributed.tensor import Shard
from torch_state import is_changed, settings_now, torch_now

from harness.contract import NotApplicable
from planners.dtensor import FAMILY
from planners.dtensor.workloads import OPTIMIZERS

pytestmark = pytest.mark.usefixtures("few_rounds")

HOST = "dgx_a100_80gb:8"
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
    "muon[layers=1]/dgx_a100_80gb:8",
    "muon[layers=1,shard=1,dims=2]/dgx_a100_80gb:16",
)
FOR_MUON = ("gather-each", "owned")


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
    """A variant with `same_as` has upstream's fingerprint on each kind of problem."""
    if variant not in EVERYWHERE and problem.program.optimizer is None:
        pytest.skip("there is no optimizer")
    if variant in FOR_MUON and not problem.program.is_muon:
        pytest.skip("there is no Muon")
    assert checked(variant, problem).fingerprint == upstream


def test_dijkstra_alone_decides_for_itself():
    """All other variants promise torch's decisions."""
    own = set(FAMILY.variants) - {"upstream", *_variants_like_upstream()}
    assert own == {"dijkstra"}


# What is left in torch


def hits_of_torch() -> int:
    """Count the hits of torch's own cache in three equal ops."""
    mesh = mesh_of(8)
    rows = placed(mesh, counted(2, 3), Shard(0))
    before, _ = torch._C._get_DTensor_sharding_propagator_cache_stats()
    for _ in range(3):
        torch.sigmoid(rows)
    after, _ = torch._C._get_DTensor_sharding_propagator_cache_stats()
    return after - before


@pytest.fixture(scope="module")
def ops():
    made = problem_of(f"ops/{HOST}")
    checked("upstream", made)  # torch imports some modules late
    return made


@pytest.mark.parametrize("name", EVERYWHERE)
def test_torch_is_as_before_when_a_variant_is_left_also_by_an_error(name, ops):
    """Functions, classes, settings and caches of torch are restored, and it begins without any."""
    hits_of_torch()
    before, settings = torch_now(), settings_now()
    prepared = FAMILY.find(name).prepared(ops)
    with prepared.installed():
        _, entries = torch._C._get_DTensor_sharding_propagator_cache_stats()
        assert entries <= len(ops.program.names)
        prepared.run()
        assert is_changed(before)
        assert settings_now() != settings
    with pytest.raises(KeyError), prepared.installed():
        raise KeyError("mine")
    with pytest.raises(RuntimeError), prepared.installed():
        torch.mm(*[placed(ops.program.mesh, counted(2, 3), Shard(0))] * 2)
    checked(name, ops)
    assert not is_changed(before)
    assert settings_now() == settings
    assert hits_of_torch() == 2


# Variants that replace an optimizer's step

STEPPING = ("local-step", "plain-step")


@pytest.mark.parametrize("options", [*(f"impl={each}" for each in OPTIMIZERS), "rule=sgd"])
@pytest.mark.parametrize("variant", STEPPING)
def test_some_steps_are_upstreams_to_the_last_bit(variant, options):
    """After three steps with clipping, parameters and states have upstream's values."""
    values = []
    for name in ("upstream", variant):
        problem = problem_of(f"optimizer[{options},params=6,lr=changing,clip=norm]/{HOST}")
        prepared = FAMILY.find(name).prepared(problem)
        if variant == "plain-step" and name == "upstream":
            problem.program.optimizer.step()  # the limit takes one to make its state
        with prepared.installed():
            decisions = [prepared.run() for _ in range(3)]
        values.append([each.to_local().clone() for each in decisions[-1].outputs])
    assert all(map(torch.equal, *values))


@pytest.mark.parametrize("variant", STEPPING)
def test_nothing_is_dispatched_or_kept_or_left(variant):
    """A step on local tensors looks up no decision, keeps no object, and restores the optimizer."""
    problem = problem_of(f"optimizer[impl=fused,params=4,lr=changing]/{HOST}")
    checked("upstream", problem)
    before, clip = torch_now(), torch.nn.utils.clip_grad_norm_
    attributes = vars(problem.program.optimizer).copy()
    counters = checked(variant, problem).counters
    assert (counters["lookups"], counters["objects_kept"], counters["bytes_kept"]) == (0, 0, 0)
    assert not is_changed(before)
    assert torch.nn.utils.clip_grad_norm_ is clip
    assert vars(problem.program.optimizer) == attributes


@pytest.mark.parametrize("variant", STEPPING)
@pytest.mark.parametrize("workload", ["mlp", "fsdp2-step[layers=1]"])
def test_other_workloads_are_not_theirs(variant, workload):
    """Programs without an optimizer are none for them, nor is a whole step for the limit."""
    problem = problem_of(f"{workload}/{HOST}")
    if (variant, workload) == ("local-step", "fsdp2-step[layers=1]"):
        FAMILY.find(variant).prepared(problem)
    else:
        with pytest.raises(NotApplicable):
            FAMILY.find(variant).prepared(problem)
