"""Drop-ins for vLLM and SGLang: upstream's results, few fetches, captured files, no traces."""

import sys
import warnings
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import made_up_engine
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from harness.contract.supported_releases import UnsupportedRelease
from harness.execution.upstream import folder
from harness.model.errors import UsageError
from harness.model.ids import WorkloadSpec
from harness.planning.capture import capture
from planners.experts import FAMILY
from planners.experts.drop_in.accelerate import DifferentPlacement, _equal, accelerate_experts
from planners.experts.drop_in.engines import ENGINES
from planners.experts.problem import Placement

MADE_UP = [("vllm", "0.33.0", False), ("sglang", "0.5.23", False)]
REAL = [
    pytest.param((name, release, True), marks=pytest.mark.upstreams(f"{name}-eplb-{release}"))
    for name, release in [("vllm", "0.33.0"), ("sglang", "0.5.9"), ("sglang", "0.5.23")]
]


@contextmanager
def imported(name, release, is_real):
    """Import a policy's module in empty parent packages; the real ones import GPUs' libraries."""
    home = ENGINES[name].home.partition(":")[0]
    parents = home.split(".")[:-1]
    try:
        for depth in range(1, len(parents) + 1):
            parent = ModuleType(".".join(parents[:depth]))
            is_last = depth == len(parents)
            parent.__path__ = [str(folder(f"{name}-eplb-{release}"))] if is_last else []
            parent.__spec__ = ModuleSpec(parent.__name__, None, is_package=True)
            sys.modules[parent.__name__] = parent
        sys.modules[name].__version__ = release
        if not is_real:
            sys.modules[home] = made_up_engine
        import_module(home)
        yield SimpleNamespace(name=name, is_real=is_real, owner=ENGINES[name].owner)
    finally:
        for module in [key for key in sys.modules if key.partition(".")[0] == name]:
            del sys.modules[module]


@pytest.fixture(params=[*MADE_UP, *REAL], ids=lambda value: "-".join(map(str, value)))
def engine(request):
    with imported(*request.param) as found:
        yield found


@pytest.fixture
def vllm():
    with imported("vllm", "0.33.0", False) as found:
        yield found


def loads_of(seed=0, layers=3, experts=16, kind=torch.float32, spread=1.0):
    draws = np.random.default_rng(seed).normal(3, spread, (layers, experts))
    return torch.from_numpy(np.rint(np.exp(draws))).to(kind)


def rebalanced(engine, loads, slots=24, groups=1, nodes=1, gpus=4, old=None):
    last = old if engine.name == "vllm" else groups % nodes == 0 and groups > 1
    return engine.owner.rebalance_experts(loads, slots, groups, nodes, gpus, last)


def slots_of(found):
    return found[0] if isinstance(found, tuple) else found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_placements_are_upstreams(engine, data):
    nodes, per_node = data.draw(st.sampled_from([(1, 1), (1, 4), (2, 2), (2, 3)]))
    gpus = nodes * per_node
    groups = data.draw(st.sampled_from([1, 4])) if engine.is_real else 1
    experts = 4 * data.draw(st.integers(2, 6))
    slots = (-(-experts // gpus) + data.draw(st.integers(0, 3))) * gpus
    kind = data.draw(st.sampled_from([torch.float32, torch.int32, torch.int64, torch.float64]))
    asked = {"slots": slots, "groups": groups, "nodes": nodes, "gpus": gpus}
    spread = data.draw(st.sampled_from([0.0, 0.7, 2.0]))
    steps = [loads_of(data.draw(st.integers(0, 9999)), 2, experts, kind, spread) for _ in range(2)]
    if data.draw(st.booleans()):
        steps[0][1] = 0
    old = slots_of(rebalanced(engine, steps[0], **asked))
    expected = [rebalanced(engine, step, old=old, **asked) for step in steps]
    with accelerate_experts(engine.name) as accelerated:
        found = [rebalanced(engine, step, old=old, **asked) for step in steps]
    assert all(map(_equal, found, expected))
    assert accelerated.info() == (2, {})


def test_few_moves_fetches_little(engine):
    loads = loads_of(1, 4, 32)
    old = slots_of(rebalanced(engine, loads, 40, gpus=8))
    later = (
        loads * torch.from_numpy(np.exp(np.random.default_rng(2).normal(0, 0.1, (4, 32))))
    ).int()
    if engine.name == "sglang":
        found = SimpleNamespace(physical_to_logical_map_cpu=old)
        module = ModuleType("sglang.srt.eplb.expert_location")
        module.get_global_expert_location_metadata = lambda: found
        sys.modules[module.__name__] = module
    upstream = rebalanced(engine, later, 40, gpus=8, old=old)
    with accelerate_experts(engine.name, mode="few-moves") as accelerated:
        ours = rebalanced(engine, later, 40, gpus=8, old=old)
    assert accelerated.info() == (1, {})
    before = Placement(old.numpy()).held(32, 8)
    new, upstreams = (
        (Placement(slots_of(made).numpy()).held(32, 8) & ~before).sum() for made in (ours, upstream)
    )
    assert new < upstreams / 2
    with accelerate_experts(engine.name, mode="few-moves", budget=1) as accelerated:
        ours = rebalanced(engine, later, 40, gpus=8, old=old)
    assert (Placement(slots_of(ours).numpy()).held(32, 8) & ~before).sum() <= 4
    if engine.name == "sglang":
        slots, padded, counts = ours
        assert [part.dtype for part in ours] == [part.dtype for part in upstream]
        assert ((padded >= 0).sum(dim=2) == counts).all()
        for layer, expert, _ in (padded >= 0).nonzero().tolist():
            held = padded[layer, expert, : counts[layer, expert]]
            assert (slots[layer, held] == expert).all()


def test_upstream_decides_where_ours_cannot(engine):
    bad, good = loads_of(), loads_of()
    bad[0, 0] = float("nan")
    expected = rebalanced(engine, bad)
    with accelerate_experts(engine.name) as accelerated:
        assert _equal(rebalanced(engine, bad), expected)
        with pytest.raises(AssertionError):
            rebalanced(engine, good, slots=25)
    ours, by_upstream = accelerated.info()
    assert (ours, sum(by_upstream.values())) == (0, 1)
    with accelerate_experts(engine.name, mode="few-moves") as accelerated:
        assert _equal(rebalanced(engine, good), rebalanced(engine, good))
    assert set(accelerated.info().by_upstream) == {"no placement is in force"}


@pytest.mark.parametrize("old", [torch.zeros(3, 24, dtype=torch.int64), torch.full((3, 24), -1)])
def test_a_placement_in_force_that_is_none_is_left_to_upstream(vllm, old):
    expected = rebalanced(vllm, loads_of(), old=old)
    with accelerate_experts("vllm", mode="few-moves") as accelerated:
        assert _equal(rebalanced(vllm, loads_of(), old=old), expected)
    assert accelerated.info().ours == 0


def test_nothing_is_left_behind(engine):
    before = dict(vars(engine.owner))
    with accelerate_experts() as accelerated:
        assert vars(engine.owner)["rebalance_experts"] is not before["rebalance_experts"]
        with pytest.raises(UsageError, match="already"):
            accelerate_experts(engine.name)
        rebalanced(engine, loads_of())
    assert dict(vars(engine.owner)) == before
    accelerated.stop()
    assert accelerated.info().ours == 1
    with accelerate_experts(engine.name):
        pass


def test_an_end_out_of_order_leaves_upstreams_decision(vllm, tmp_path):
    before = rebalanced(vllm, loads_of())
    accelerated = accelerate_experts("vllm")
    with capture("experts", tmp_path / "loads.json"):
        accelerated.stop()
        assert _equal(rebalanced(vllm, loads_of()), before)
    assert accelerated.info().ours == 0
    assert _equal(rebalanced(vllm, loads_of()), before)


def test_a_difference_is_warned_about_once_and_upstream_decides_from_then_on(vllm):
    expected = rebalanced(vllm, loads_of())
    with accelerate_experts("vllm", check=True) as accelerated:
        rebalanced(vllm, loads_of())
        accelerated._parts = {"balanced_packing": classmethod(lambda cls, *_: 0 / 0)}
        with pytest.warns(DifferentPlacement, match="vllm"):
            assert _equal(rebalanced(vllm, loads_of()), expected)
        accelerated._distrusted = ""
        accelerated._parts = {"replicate_experts": vars(made_up_engine.DefaultEplbPolicy)["_other"]}
        with pytest.warns(DifferentPlacement, match="otherwise"):
            assert _equal(rebalanced(vllm, loads_of()), expected)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert _equal(rebalanced(vllm, loads_of()), expected)
    ours, by_upstream = accelerated.info()
    assert (ours, sum(by_upstream.values())) == (1, 3)


def test_an_untested_release_is_left_alone(vllm):
    sys.modules["vllm"].__version__ = "0.99.0"
    before = vars(vllm.owner)["rebalance_experts"]
    with pytest.warns(UnsupportedRelease, match=r"0\.99\.0"), accelerate_experts("vllm"):
        assert vars(vllm.owner)["rebalance_experts"] is before
    with accelerate_experts("vllm", any_release=True):
        assert vars(vllm.owner)["rebalance_experts"] is not before


@pytest.mark.parametrize(
    "wrong",
    [
        {"engine": "vlm"},
        {"mode": "fast"},
        {"budget": 3},
        {"mode": "few-moves", "budget": -1},
        {"mode": "few-moves", "check": True},
        {"capture": "loads.txt"},
        {"capture": "no/such/folder/loads.json"},
    ],
)
def test_wrong_arguments_are_one_sentence(vllm, wrong):
    with pytest.raises(UsageError):
        accelerate_experts(**wrong)
    with accelerate_experts("vllm"):
        pass


def test_without_an_engine_its_name_is_asked_for():
    with pytest.raises(UsageError, match="vllm or sglang: none is"):
        accelerate_experts()


@pytest.mark.parametrize("is_drop_in", [True, False])
def test_captured_rebalancings_are_a_workload(engine, tmp_path, is_drop_in):
    path = tmp_path / "loads.json.gz"
    steps = [loads_of(seed, kind=torch.int64) for seed in range(3)]
    old = slots_of(rebalanced(engine, steps[0]))
    with accelerate_experts(engine.name, capture=path) if is_drop_in else capture("experts", path):
        for step in (steps[0] * 0, *steps):
            rebalanced(engine, step, old=old)
    workload = WorkloadSpec.parse(str(path))
    topology = FAMILY.brings(workload)
    assert topology.gpus == 4
    problem = FAMILY.work.build(workload, topology)
    assert (problem.loads == steps[1].numpy()).all()
    assert (problem.following == steps[2].numpy()).all()
    assert problem.slots == 24
    assert (problem.previous is not None) == (engine.name == "vllm")
