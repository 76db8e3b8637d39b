"""Variants decide as torch does, restore its state, and count their work exactly."""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from small_world import (
    EVERYWHERE,
    FEW_ROUNDS,
    FOR_MUON,
    checked,
    counted,
    mesh_of,
    placed,
    problem_of,
)
from torch.distributed.tensor import Shard
from torch_state import changed, settings_now, torch_now

from harness.contract import NotApplicable
from planners.dtensor import FAMILY
from planners.dtensor.dispatch.specs import SpecTable
from planners.dtensor.keeping import kept_per_step
from planners.dtensor.workloads import OPS, OPTIMIZERS

pytestmark = pytest.mark.usefixtures("few_rounds")

HOST = "dgx_a100_80gb:8"
PROBLEMS = (
    "ops/dgx_a100_80gb:8",
    "ops[dims=2]/dgx_a100_80gb:8",
    "mlp/dgx_a100_80gb:8",
    "transformer-block/dgx_a100_80gb:4",
    "miss[dims=2]/dgx_a100_80gb:16",
    "miss[dims=2,cases=12,seed=3]/dgx_a100_80gb:4",
    "dynamic[dims=2]/dgx_a100_80gb:16",
    "optimizer[impl=single,params=3]/dgx_a100_80gb:8",
    "optimizer[impl=fused,params=3,dims=2]/dgx_a100_80gb:8",
    "optimizer[rule=sgd,params=6,clip=norm]/dgx_a100_80gb:8",
    "fsdp2-step[layers=2]/dgx_a100_80gb:4",
    "muon[layers=1]/dgx_a100_80gb:8",
    "muon[layers=1,shard=1,dims=2]/dgx_a100_80gb:16",
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
def test_it_decides_as_torch_does_and_leaves_torch_as_it_was(variant, problem, upstream):
    """A variant with `same_as` has upstream's fingerprint on each kind of problem it is for."""
    program, before = problem.program, torch_now()
    is_for_it = variant in EVERYWHERE or program.optimizer is not None
    if variant in FOR_MUON:
        is_for_it = program.is_muon
    if variant == "plain-step" and program.differentiates:
        is_for_it = False
    if is_for_it:
        assert checked(variant, problem).fingerprint == upstream
        assert not changed(before)
    else:
        with pytest.raises(NotApplicable):
            FAMILY.find(variant).prepared(problem)


def test_dijkstra_alone_decides_for_itself():
    """All other variants promise torch's decisions."""
    own = set(FAMILY.variants) - {"upstream", *_variants_like_upstream()}
    assert own == {"dijkstra"}


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
def test_torch_is_as_before_when_a_variant_is_left_by_an_error(name, ops):
    """Functions, classes, settings and caches of torch are restored, and it begins without any."""
    hits_of_torch()
    before, settings = torch_now(), settings_now()
    prepared = FAMILY.find(name).prepared(ops)
    with prepared.installed():
        _, entries = torch._C._get_DTensor_sharding_propagator_cache_stats()
        assert entries <= len(ops.program.names)
        prepared.run()
        assert settings_now() != settings
    with pytest.raises(RuntimeError), prepared.installed():
        torch.mm(*[placed(ops.program.mesh, counted(2, 3), Shard(0))] * 2)
    assert not changed(before)
    assert settings_now() == settings
    assert hits_of_torch() == 2


@pytest.mark.parametrize("options", [*(f"impl={each}" for each in OPTIMIZERS), "rule=sgd"])
@pytest.mark.parametrize("variant", ["local-step", "plain-step"])
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


# Counters

ORDINARY = ("mm", "addmm", "mul", "relu", "t", "add-scalar")
DISPATCHES = ("before", "after", "no-pytree", "upstream", "interned")
PASSES = dict.fromkeys(DISPATCHES, 0) | {"before": 11 * FEW_ROUNDS, "after": 6 * FEW_ROUNDS}
SEARCHES = ("upstream", "dijkstra", "exact-miss")


@pytest.fixture(scope="module")
def counters_of():
    """Return the counters of a variant on a workload."""
    known: dict[tuple[str, str], Mapping[str, int]] = {}

    def counters_of(variant: str, workload: str) -> Mapping[str, int]:
        if (variant, workload) not in known:
            problem = problem_of(f"{workload}/{HOST}")
            program = replace(problem.program, counts_kept=False)  # which takes fifty steps more
            known[variant, workload] = checked(variant, replace(problem, program=program)).counters
        return known[variant, workload]

    return counters_of


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("variant", EVERYWHERE)
def test_every_op_is_looked_up_once_and_is_a_hit_or_a_miss(variant, op, counters_of):
    """Warm calls are hits, but for views before #107305; kept decisions have a size."""
    found = counters_of(variant, f"ops[op={op}]")
    assert found["lookups"] == found["hits"] + found["misses"] == FEW_ROUNDS
    is_forgotten = variant == "uncached" or (variant == "before" and op.startswith("view"))
    assert found["misses"] == (FEW_ROUNDS if is_forgotten else 0)
    assert found["cache_entries"] >= 1
    assert found["cache_bytes"] > 500 * found["cache_entries"]
    if variant in ("interned", "shape-class"):
        assert found["specs_built"] == found["strategies_expanded"] == found["pytree_passes"] == 0


@pytest.mark.parametrize(
    ("workload", "counter", "expected"),
    [
        *((f"ops[op={op}]", "pytree_passes", PASSES) for op in ORDINARY),
        ("ops[op=view]", "pytree_passes", {"after": 6 * FEW_ROUNDS}),
        ("ops[op=view-sharded]", "pytree_passes", {"after": 7 * FEW_ROUNDS}),  # for its own size
        # Two calls warm, one is counted: the oldest way keeps a view again in each call.
        ("ops[op=view]", "cache_entries", {"before": 3 * FEW_ROUNDS, "after": 1}),
        # Torch builds a spec for the number of every op.
        ("ops[op=add-scalar]", "specs_built", {"upstream": FEW_ROUNDS, "interned": 0}),
        ("mlp", "misses", {"before": 2, **dict.fromkeys((*DISPATCHES[1:], "shape-class"), 0)}),
        ("mlp", "lookups", dict.fromkeys((*DISPATCHES, "shape-class"), 24)),
        # The two products are of equal shapes and placements, so that the second one is known.
        ("dynamic", "misses", dict.fromkeys((*DISPATCHES, "exact-miss"), 2) | {"shape-class": 0}),
        ("dynamic", "strategies_expanded", {"shape-class": 0}),
        ("dynamic", "specs_built", {"shape-class": 0}),
        ("miss[dims=2]", "misses", dict.fromkeys(SEARCHES, len(OPS))),
        ("miss[dims=2]", "strategies_expanded", dict.fromkeys(SEARCHES[1:], len(OPS))),
    ],
)
def test_counters_show_what_each_variant_saves(workload, counter, expected, counters_of):
    """Views, numbers, new sizes and misses take the work that the variants promise."""
    assert {variant: counters_of(variant, workload)[counter] for variant in expected} == expected


def test_torch_puts_all_strategies_of_a_miss_together(counters_of):
    """On two mesh dimensions a miss expands more than twenty strategies an op."""
    assert counters_of("upstream", "miss[dims=2]")["strategies_expanded"] > 20 * len(OPS)


# Objects that outlive a step


@pytest.mark.parametrize("implementation", OPTIMIZERS)
@pytest.mark.parametrize("variant", ["upstream", "interned", "local-step", "plain-step"])
def test_an_optimizer_step_keeps_nothing(variant, implementation):
    """No object outlives a step, and steps on local tensors look up no decision."""
    problem = problem_of(f"optimizer[impl={implementation},params=4,lr=changing]/{HOST}")
    counters = checked(variant, problem).counters
    assert (counters["objects_kept"], counters["bytes_kept"]) == (0, 0)
    assert counters["lookups"] == counters["hits"] < 400
    assert (counters["lookups"] == 0) is variant.endswith("-step")


def test_new_keys_and_new_sizes_are_kept(monkeypatch):
    """Before #107305 a learning rate is a new key; upstream keeps new sizes, a full table none."""
    problem = problem_of(f"optimizer[impl=fused,params=4,lr=changing]/{HOST}")
    assert checked("before", problem).counters["objects_kept"] > 0
    problem = problem_of(f"dynamic/{HOST}")
    upstream, ours = (checked(variant, problem).counters for variant in ("upstream", "shape-class"))
    assert upstream["objects_kept"] > 10 * ours["objects_kept"]
    monkeypatch.setattr(SpecTable.__init__, "__defaults__", (2,))
    assert checked("shape-class", problem_of(f"dynamic/{HOST}")).counters["objects_kept"] == 0


def test_only_objects_that_add_up_from_step_to_step_are_counted():
    """A leak is counted; an object that is made once, or replaces an older one, is none."""
    leaked: list[object] = []
    leak = kept_per_step(lambda: leaked.append([[]]))
    assert leak.objects == 2
    assert leak.bytes >= 2 * 56
    known: dict[str, list[list[int]]] = {}
    assert kept_per_step(lambda: known.setdefault("made", [[], []])) == (0, 0)
    last = deque(([number] for number in range(1000)), maxlen=1000)
    assert kept_per_step(lambda: last.append([0])) == (0, 0)
