"""Drop-ins for vLLM and SGLang: upstream's results, few fetches, captured files, no traces."""

import sys
import warnings
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.machinery import ModuleSpec
from threading import Event, Thread
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


def outcome(call):
    """Return the placement of a call as text, or its error."""
    try:
        return str(call())
    except Exception as error:
        return type(error), str(error)


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


def with_parts(monkeypatch, **parts):
    """Let vLLM's engine have other parts by name."""
    own = ENGINES["vllm"]
    changed = replace(own, parts=lambda release: {**own.parts(release), **parts})
    monkeypatch.setitem(ENGINES, "vllm", changed)


@pytest.mark.parametrize("fault", ["failed", "otherwise"])
def test_a_difference_is_warned_about_once_and_upstream_decides_from_then_on(
    vllm, monkeypatch, fault
):
    """A failure of our code and another decision are warned about once; upstream decides then."""
    expected = rebalanced(vllm, loads_of())
    own = ENGINES["vllm"].parts("0.33.0")["replicate_experts"]
    is_wrong = False

    def replicate(weight, slots):
        if is_wrong and fault == "failed":
            raise ZeroDivisionError
        return (
            made_up_engine.DefaultEplbPolicy._other(weight, slots)
            if is_wrong
            else own(weight, slots)
        )

    with_parts(monkeypatch, replicate_experts=replicate)
    with accelerate_experts("vllm", check=True) as accelerated:
        rebalanced(vllm, loads_of())
        is_wrong = True
        with pytest.warns(DifferentPlacement, match=fault):
            assert _equal(rebalanced(vllm, loads_of()), expected)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert _equal(rebalanced(vllm, loads_of()), expected)
    ours, by_upstream = accelerated.info()
    assert (ours, sum(by_upstream.values())) == (1, 2)


class Waiting:
    """Loads whose conversion in the engine's own function waits, as a copy from a GPU does."""

    def __init__(self, loads):
        self.loads, self.shape, self.conversions = loads, loads.shape, 0
        self.is_inside, self.go_on = Event(), Event()

    def float(self):
        self.conversions += 1
        if self.conversions == 2:  # the first one is ours
            self.is_inside.set()
            assert self.go_on.wait(60)
        return self.loads.float()

    def start(self, engine, placements):
        """Rebalance in a thread, and return when it is inside the engine's function."""
        self.thread = Thread(target=lambda: placements.append(rebalanced(engine, self)))
        self.thread.start()
        assert self.is_inside.wait(60)

    def finish(self):
        """Let the rebalancing end."""
        self.go_on.set()
        self.thread.join(60)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_stops_and_starts_while_threads_rebalance_leave_nothing_behind(engine, order):
    """After the last `stop`, the engine is as before, in whatever order rebalancings end."""
    before, placements = dict(vars(engine.owner)), []
    expected = [rebalanced(engine, loads_of(seed)) for seed in order]
    loads = [Waiting(loads_of(seed)) for seed in (0, 1)]
    first = accelerate_experts(engine.name)
    loads[0].start(engine, placements)
    first.stop()
    assert dict(vars(engine.owner)) == before
    second = accelerate_experts(engine.name)
    loads[1].start(engine, placements)
    loads[order[0]].finish()
    second.stop()
    assert dict(vars(engine.owner)) == before
    loads[order[1]].finish()
    assert dict(vars(engine.owner)) == before
    assert first.info() == second.info() == (1, {})
    assert all(map(_equal, placements, expected))


def test_another_threads_rebalancing_by_upstream_has_upstreams_parts(vllm, monkeypatch):
    """While one thread decides with our parts, another one's check calls upstream's own."""
    parts = []
    own = ENGINES["vllm"].parts("0.33.0")["replicate_experts"]
    with_parts(monkeypatch, replicate_experts=lambda *given: parts.append(1) or own(*given))
    with accelerate_experts("vllm"):
        loads = Waiting(loads_of())
        loads.start(vllm, [])
        parts.clear()
        vllm.owner.replicate_experts(loads_of().numpy(), 24)
        assert parts == []
        loads.finish()
        assert parts == [1]


@pytest.mark.parametrize("mode", ["same-placement", "few-moves"])
@pytest.mark.parametrize("wrong", ["1-D loads", "no nodes", "too few arguments"])
def test_a_call_that_upstream_refuses_too_is_no_failure_of_ours(engine, mode, wrong):
    """After upstream's error for a wrong call, our code decides the next rebalancing."""
    call = {
        "1-D loads": lambda: rebalanced(engine, loads_of()[0]),
        "no nodes": lambda: rebalanced(engine, loads_of(), nodes=0),
        "too few arguments": lambda: engine.owner.rebalance_experts(loads_of()),
    }[wrong]
    old = slots_of(rebalanced(engine, loads_of(1)))
    expected = outcome(call)
    with warnings.catch_warnings(), accelerate_experts(engine.name, mode=mode) as accelerated:
        warnings.simplefilter("error")
        assert outcome(call) == expected
        rebalanced(engine, loads_of(), old=old)
    if mode == "same-placement":
        assert accelerated.info().ours == 1


def test_loads_with_gradients_are_placed_or_refused_as_by_upstream(engine):
    """Loads that require gradients give upstream's placement or error."""
    loads = loads_of().requires_grad_()
    expected = outcome(lambda: rebalanced(engine, loads))
    with warnings.catch_warnings(), accelerate_experts(engine.name) as accelerated:
        warnings.simplefilter("error")
        assert outcome(lambda: rebalanced(engine, loads)) == expected
        rebalanced(engine, loads_of())
    assert accelerated.info().by_upstream == {}


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
