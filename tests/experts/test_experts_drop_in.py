"""The drop-in on the real policies of vLLM and SGLang: their results, few fetches, no traces."""

import sys
import warnings
from dataclasses import replace
from importlib.machinery import ModuleSpec
from threading import Event, Thread
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from harness.contract.supported_releases import UnsupportedRelease
from harness.execution.upstream import folder
from harness.model.errors import UsageError
from harness.model.ids import WorkloadSpec
from planners.experts import FAMILY
from planners.experts.drop_in.accelerate import DifferentPlacement, accelerate_experts
from planners.experts.drop_in.engines import ENGINES
from planners.experts.problem import Placement

POLICIES = [
    pytest.param(name, marks=pytest.mark.upstreams(name))
    for name in ("vllm-eplb-0.33.0", "sglang-eplb-0.5.9", "sglang-eplb-0.5.23")
]
with_vllm = pytest.mark.parametrize("engine", POLICIES[:1], indirect=True)


@pytest.fixture(params=POLICIES)
def engine(request):
    """Import a policy's module in empty parent packages; the real ones import GPUs' libraries."""
    name, _, release = request.param.split("-")
    home = ENGINES[name].module
    parents = home.split(".")[:-1]
    try:
        for depth in range(1, len(parents) + 1):
            parent = ModuleType(".".join(parents[:depth]))
            is_last = depth == len(parents)
            parent.__path__ = [str(folder(request.param))] if is_last else []
            parent.__spec__ = ModuleSpec(parent.__name__, None, is_package=True)
            sys.modules[parent.__name__] = parent
        sys.modules[name].__version__ = release
        yield SimpleNamespace(name=name, owner=ENGINES[name].owner)
    finally:
        for module in [key for key in sys.modules if key.partition(".")[0] == name]:
            del sys.modules[module]


def loads_of(seed=0, layers=3, experts=16, kind=torch.float32, spread=1.0):
    """Return drawn loads of layers x experts."""
    draws = np.random.default_rng(seed).normal(3, spread, (layers, experts))
    return torch.from_numpy(np.rint(np.exp(draws))).to(kind)


def rebalanced(engine, loads, slots=24, groups=1, nodes=1, gpus=4, old=None):
    """Return the engine's own result for loads, and at vLLM for the placement in force."""
    last = old if engine.name == "vllm" else groups % nodes == 0 and groups > 1
    return engine.owner.rebalance_experts(loads, slots, groups, nodes, gpus, last)


def outcome(call):
    """Return the types, shapes and values of a call's tensors, or its error."""
    try:
        made = call()
    except Exception as error:
        return type(error), str(error)
    return [(part.dtype, part.tolist()) for part in (made if isinstance(made, tuple) else [made])]


def slots_of(made):
    """Return the slots in an engine's result."""
    return made[0] if isinstance(made, tuple) else made


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_placements_are_upstreams(engine, data):
    """For all sizes, types of loads and placements in force, the result is upstream's."""
    nodes, per_node = data.draw(st.sampled_from([(1, 1), (1, 4), (2, 2), (2, 3)]))
    gpus = nodes * per_node
    experts = 4 * data.draw(st.integers(2, 6))
    slots = (-(-experts // gpus) + data.draw(st.integers(0, 3))) * gpus
    groups = data.draw(st.sampled_from([1, 4]))
    asked = {"slots": slots, "groups": groups, "nodes": nodes, "gpus": gpus}
    kind = data.draw(st.sampled_from([torch.float32, torch.int32, torch.int64, torch.float64]))
    spread = data.draw(st.sampled_from([0.0, 0.7, 2.0]))
    steps = [loads_of(data.draw(st.integers(0, 9999)), 2, experts, kind, spread) for _ in range(2)]
    if data.draw(st.booleans()):
        steps[0][1] = 0
    old = slots_of(rebalanced(engine, steps[0], **asked))

    def outcomes():
        return [outcome(lambda: rebalanced(engine, step, old=old, **asked)) for step in steps]  # noqa: B023

    expected = outcomes()
    with accelerate_experts(engine.name) as accelerated:
        assert outcomes() == expected
    assert accelerated.info() == (2, {})


def test_few_moves_fetches_little(engine):
    """Mode few-moves fetches less than half of upstream's fetches, and at most its budget."""
    loads = loads_of(1, 4, 32)
    old = slots_of(rebalanced(engine, loads, 40, gpus=8))
    drift = torch.from_numpy(np.exp(np.random.default_rng(2).normal(0, 0.1, (4, 32))))
    later = (loads * drift).int()
    if engine.name == "sglang":
        metadata = SimpleNamespace(physical_to_logical_map_cpu=old)
        module = ModuleType("sglang.srt.eplb.expert_location")
        module.get_global_expert_location_metadata = lambda: metadata
        sys.modules[module.__name__] = module

    def fetches(made):
        now, before = (Placement(slots.numpy()).on_gpus(32, 8) for slots in (slots_of(made), old))
        return (now & ~before).sum()

    upstream = rebalanced(engine, later, 40, gpus=8, old=old)
    with accelerate_experts(engine.name, mode="few-moves") as accelerated:
        ours = rebalanced(engine, later, 40, gpus=8, old=old)
    assert accelerated.info() == (1, {})
    assert fetches(ours) < fetches(upstream) / 2
    with accelerate_experts(engine.name, mode="few-moves", budget=1):
        assert fetches(rebalanced(engine, later, 40, gpus=8, old=old)) <= 4
    if engine.name == "sglang":
        slots, padded, counts = ours
        assert [part.dtype for part in ours] == [part.dtype for part in upstream]
        assert ((padded >= 0).sum(dim=2) == counts).all()
        for layer, expert, _ in (padded >= 0).nonzero().tolist():
            assert (slots[layer, padded[layer, expert, : counts[layer, expert]]] == expert).all()


def test_upstream_decides_where_ours_cannot(engine):
    """Loads that are no numbers, and few-moves without a placement in force, are upstream's."""
    bad, good = loads_of(), loads_of()
    bad[0, 0] = float("nan")
    for mode, loads in (("same-placement", bad), ("few-moves", good)):
        expected = outcome(lambda: rebalanced(engine, loads))  # noqa: B023
        with accelerate_experts(engine.name, mode=mode) as accelerated:
            assert outcome(lambda: rebalanced(engine, loads)) == expected  # noqa: B023
        ours, by_upstream = accelerated.info()
        assert (ours, sum(by_upstream.values())) == (0, 1)


@with_vllm
@pytest.mark.parametrize("old", [torch.zeros(3, 24, dtype=torch.int64), torch.full((3, 24), -1)])
def test_a_placement_in_force_that_is_none_is_left_to_upstream(engine, old):
    """Mode few-moves does not start from a placement without all experts."""
    expected = outcome(lambda: rebalanced(engine, loads_of(), old=old))
    with accelerate_experts("vllm", mode="few-moves") as accelerated:
        assert outcome(lambda: rebalanced(engine, loads_of(), old=old)) == expected
    assert accelerated.info().ours == 0


def test_nothing_is_left_behind(engine):
    """After the end the engine is as before; a second start is refused meanwhile."""
    before = dict(vars(engine.owner))
    with accelerate_experts() as accelerated:
        changed = {name for name, now in vars(engine.owner).items() if now is not before[name]}
        assert changed == {"rebalance_experts"}
        with pytest.raises(UsageError, match="already"):
            accelerate_experts(engine.name)
        rebalanced(engine, loads_of())
    assert dict(vars(engine.owner)) == before
    accelerated.stop()
    assert accelerated.info().ours == 1
    with accelerate_experts(engine.name):
        pass


def test_an_end_out_of_order_leaves_upstreams_decision(engine, monkeypatch):
    """A hook that another program has replaced passes calls on after its end."""
    before = outcome(lambda: rebalanced(engine, loads_of()))
    accelerated = accelerate_experts(engine.name)
    ours = engine.owner.rebalance_experts
    monkeypatch.setattr(engine.owner, "rebalance_experts", lambda *given: ours(*given))
    accelerated.stop()
    assert outcome(lambda: rebalanced(engine, loads_of())) == before
    assert accelerated.info().ours == 0


@with_vllm
def test_a_policy_with_parts_of_its_own_is_left_alone(engine):
    """A class that inherits the engine's rebalancing keeps its own packing."""

    class Reversed(engine.owner):
        @classmethod
        def balanced_packing(cls, weight, packs):
            return engine.owner.balanced_packing(-weight, packs)

    own = SimpleNamespace(name="vllm", owner=Reversed)
    expected = outcome(lambda: rebalanced(own, loads_of()))
    with accelerate_experts("vllm") as accelerated:
        assert outcome(lambda: rebalanced(own, loads_of())) == expected
    assert accelerated.info().ours == 0


@with_vllm
@pytest.mark.parametrize("fault", ["failed", "otherwise"])
def test_after_a_difference_upstream_decides(engine, monkeypatch, fault):
    """A failure of ours or another decision is warned about once; then upstream decides."""
    expected = outcome(lambda: rebalanced(engine, loads_of()))
    parts = ENGINES["vllm"].parts("0.33.0")
    is_wrong = False

    def replicate(weight, slots):
        if is_wrong and fault == "failed":
            raise ZeroDivisionError
        return parts["replicate_experts"](weight[:, ::-1] if is_wrong else weight, slots)

    wrong = replace(
        ENGINES["vllm"], parts=lambda release: {**parts, "replicate_experts": replicate}
    )
    monkeypatch.setitem(ENGINES, "vllm", wrong)
    with accelerate_experts("vllm", check=True) as accelerated:
        rebalanced(engine, loads_of())
        is_wrong = True
        with pytest.warns(DifferentPlacement, match=fault):
            assert outcome(lambda: rebalanced(engine, loads_of())) == expected
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert outcome(lambda: rebalanced(engine, loads_of())) == expected
    ours, by_upstream = accelerated.info()
    assert (ours, sum(by_upstream.values())) == (1, 2)


class Waiting:
    """Loads that let a rebalancing wait inside the engine's function, as those of a GPU do."""

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
    expected = [outcome(lambda: rebalanced(engine, loads_of(seed))) for seed in order]  # noqa: B023
    loads = [Waiting(loads_of(seed)) for seed in (0, 1)]
    first = accelerate_experts(engine.name)
    loads[0].start(engine, placements)
    first.stop()
    assert dict(vars(engine.owner)) == before
    second = accelerate_experts(engine.name)
    loads[1].start(engine, placements)
    loads[order[0]].finish()
    second.stop()
    loads[order[1]].finish()
    assert dict(vars(engine.owner)) == before
    assert first.info() == second.info() == (1, {})
    assert [outcome(lambda: made) for made in placements] == expected  # noqa: B023


@pytest.mark.parametrize("mode", ["same-placement", "few-moves"])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda engine: rebalanced(engine, loads_of()[0]),
        lambda engine: rebalanced(engine, loads_of(), nodes=0),
        lambda engine: rebalanced(engine, loads_of(), slots=25),
        lambda engine: rebalanced(engine, loads_of().requires_grad_()),
        lambda engine: engine.owner.rebalance_experts(loads_of()),
    ],
    ids=["1-D loads", "no nodes", "too many slots", "gradients", "too few arguments"],
)
def test_a_call_that_upstream_refuses_is_no_failure_of_ours(engine, mode, wrong):
    """A wrong call has upstream's outcome, and our code decides the next one."""
    old = slots_of(rebalanced(engine, loads_of(1)))
    expected = outcome(lambda: wrong(engine))
    with warnings.catch_warnings(), accelerate_experts(engine.name, mode=mode) as accelerated:
        warnings.simplefilter("error")
        assert outcome(lambda: wrong(engine)) == expected
        before = accelerated.info().ours
        rebalanced(engine, loads_of(), old=old)
    if mode == "same-placement":
        assert accelerated.info().ours == before + 1


@with_vllm
def test_an_untested_release_is_left_alone(engine):
    """On an untested release nothing changes but for one warning, unless any release is asked."""
    sys.modules["vllm"].__version__ = "0.99.0"
    before = vars(engine.owner)["rebalance_experts"]
    with pytest.warns(UnsupportedRelease, match=r"0\.99\.0"), accelerate_experts("vllm"):
        assert vars(engine.owner)["rebalance_experts"] is before
    with accelerate_experts("vllm", any_release=True):
        assert vars(engine.owner)["rebalance_experts"] is not before


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"engine": "vlm"},
        {"mode": "fast"},
        {"budget": 3},
        {"mode": "few-moves", "budget": -1},
        {"mode": "few-moves", "check": True},
        {"engine": "vllm", "capture": "loads.txt"},
        {"engine": "vllm", "capture": "no/such/folder/loads.json"},
    ],
)
def test_wrong_arguments_are_one_sentence(wrong):
    """Wrong arguments, and no name where no engine is installed, are UsageErrors."""
    with pytest.raises(UsageError):
        accelerate_experts(**wrong)


def test_captured_rebalancings_are_a_workload(engine, tmp_path):
    """The last rebalancings but empty ones are planned with their sizes and placement."""
    path = tmp_path / "loads.json.gz"
    steps = [loads_of(seed, kind=torch.int64) for seed in range(3)]
    old = slots_of(rebalanced(engine, steps[0]))
    with accelerate_experts(engine.name, capture=path):
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
