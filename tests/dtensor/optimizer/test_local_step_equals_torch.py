"""An accelerated optimizer computes what torch computes, to the last bit, or raises its error."""

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from optimizer_pairs import Weight, outcome, pair
from small_world import mesh_of
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from planners.dtensor.optimizer import obstacles

_IMPLEMENTATIONS: dict[str, dict[str, bool]] = {
    "single": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "torch's choice": {},
}
_OWN: dict[str, dict[str, list[Any]]] = {
    "SGD": {"momentum": [0, 0.9], "dampening": [0, 0.1]},
    "Adam": {"amsgrad": [False, True]},
    "AdamW": {"amsgrad": [False, True]},
    "NAdam": {"decoupled_weight_decay": [False, True]},
    "RAdam": {"decoupled_weight_decay": [False, True]},
    "Adamax": {},
    "Adagrad": {"lr_decay": [0, 0.1], "initial_accumulator_value": [0, 0.5]},
    "Adadelta": {},
    "RMSprop": {"momentum": [0, 0.9], "centered": [False, True]},
    "ASGD": {"t0": [2, 1e6]},
    "Rprop": {},
}
_FUSED = ("SGD", "Adam", "AdamW", "Adagrad")
_FAILS = {("Rprop", name) for name in _IMPLEMENTATIONS} | {("SGD", "fused"), ("Adagrad", "fused")}

_SHAPES = ((8, 4), (5,), (3, 2), (1,), (0, 4), (2, 3, 4), ())


@st.composite
def rules(draw: st.DrawFn) -> tuple[str, str, dict[str, Any]]:
    """Draw a rule, an implementation and options."""
    rule = draw(st.sampled_from(sorted(_OWN)))
    names = [name for name in _IMPLEMENTATIONS if name != "fused" or rule in _FUSED]
    implementation = draw(st.sampled_from(names))
    options = {name: draw(st.sampled_from(values)) for name, values in _OWN[rule].items()}
    options |= _IMPLEMENTATIONS[implementation]
    options["maximize"] = draw(st.booleans())
    options["lr"] = draw(st.sampled_from([1e-3, 0.5]))
    if rule != "Rprop":
        options["weight_decay"] = draw(st.sampled_from([0, 0.1]))
    return rule, implementation, options


def placements(shape: tuple[int, ...], ndim: int) -> st.SearchStrategy[tuple[Any, ...]]:
    whole: list[Any] = [Replicate(), *(Shard(dim) for dim in range(len(shape)))]
    even = st.tuples(*[st.sampled_from(whole)] * ndim)
    if ndim == 1 or not shape:
        return even
    return even | st.just((_StridedShard(0, split_factor=2), Shard(0)))


@st.composite
def weights(draw: st.DrawFn, ndim: int) -> list[Weight]:
    drawn = []
    for shape in draw(st.lists(st.sampled_from(_SHAPES), min_size=1, max_size=4)):
        is_plain = draw(st.integers(0, 9)) == 0
        drawn.append(
            Weight(
                shape,
                None if is_plain else draw(placements(shape, ndim)),
                draw(st.sampled_from([torch.float32, torch.float32, torch.bfloat16])),
                draw(st.sampled_from([(True,), (True,), (True, False), (False, True, True)])),
            )
        )
    return drawn


@settings(deadline=None)
@given(data=st.data(), rule=rules(), shape=st.sampled_from([(4,), (3,), (2, 2)]))
def test_parameters_gradients_and_states_are_torchs(data, rule, shape):
    name, _, options = rule
    mesh = mesh_of(*shape)
    torchs, ours, accelerated = pair(
        mesh, data.draw(weights(len(shape))), partial(getattr(torch.optim, name), **options)
    )
    steps = data.draw(st.integers(1, 6))
    assert outcome(ours, steps) == outcome(torchs, steps)
    info = accelerated.info()
    with_grad = sum(parameter.grad is not None for parameter in ours.parameters)
    assert info.local + sum(info.by_torch.values()) <= with_grad + len(ours.parameters)


_MIXED = [
    Weight((8, 4), (Shard(0),)),
    Weight((5,), (Shard(0),), used=(True, True, False)),
    Weight((3, 4), (Replicate(),)),
]


@pytest.mark.parametrize("implementation", _IMPLEMENTATIONS)
@pytest.mark.parametrize("rule", _OWN)
def test_fifty_steps_are_torchs_and_local(rule, implementation):
    if implementation == "fused" and rule not in _FUSED:
        pytest.skip("torch has no such step")
    make = partial(getattr(torch.optim, rule), **_IMPLEMENTATIONS[implementation])
    torchs, ours, accelerated = pair(mesh_of(4), _MIXED, make)
    assert outcome(ours, 50) == outcome(torchs, 50)
    fails = (rule, implementation) in _FAILS
    assert (accelerated.info().local == 0) is fails
    assert bool(accelerated.info().by_torch) is fails


@pytest.mark.parametrize("rule", ["Muon", "Adafactor", "LBFGS"])
def test_other_rules_are_left_to_torch(rule):
    weights = [Weight((8, 4), (Replicate(),))]
    torchs, ours, accelerated = pair(mesh_of(4), weights, getattr(torch.optim, rule))
    assert vars(ours.optimizer).keys() == vars(torchs.optimizer).keys()
    assert accelerated.info() == (0, {obstacles.RULE: 1})


def test_a_rule_of_ones_own_is_left_to_torch():
    class Mine(torch.optim.AdamW):
        pass

    _, ours, accelerated = pair(mesh_of(4), _MIXED, Mine)
    ours.step()
    assert accelerated.info() == (0, {obstacles.RULE: 3})


MOVED = {0: (Partial(),), 2: (Shard(0),)}


def step_with_moved_gradients(training, moved=MOVED):
    """Take a step for which torch has to move the gradients of some weights."""
    training.grads()
    training.taken += 1
    for place, placements in moved.items():
        weight = Weight(training.weights[place].shape, placements)
        training.parameters[place].grad = weight.tensor(training.mesh)
    training.optimizer.step()


@pytest.mark.parametrize("implementation", ["single", "foreach", "fused"])
def test_gradients_with_other_placements_are_left_to_torch(implementation):
    """Torch steps weights whose gradient it has to move; lists of them at first as a whole."""
    make = partial(torch.optim.AdamW, **_IMPLEMENTATIONS[implementation])
    weights = [Weight(each.shape, each.placements) for each in _MIXED]
    torchs, ours, accelerated = pair(mesh_of(4), weights, make)
    for training in (torchs, ours):
        training.step()
    assert accelerated.info() == (3, {})
    for first in (True, False):
        for training in (torchs, ours):
            step_with_moved_gradients(training)
        together = {obstacles.TOGETHER: 1} if first and implementation != "single" else {}
        of_torch = {obstacles.PARTIAL: 1, obstacles.GRADIENT: 1, **together}
        assert accelerated.info() == (0 if together else 1, of_torch)
        assert ours.result() == torchs.result()


@settings(deadline=None)
@given(
    rule=rules(),
    moved=st.dictionaries(
        st.sampled_from([0, 2]),
        st.tuples(st.sampled_from([Partial(), Partial("max"), Replicate(), Shard(0), Shard(1)])),
        min_size=1,
    ),
    late=st.booleans(),
)
def test_after_an_error_with_a_moved_gradient_values_are_torchs(rule, moved, late):
    """Where torch cannot move a gradient, the same has been stepped before its error."""
    name, _, options = rule
    results = []
    for training in pair(mesh_of(4), _MIXED, partial(getattr(torch.optim, name), **options))[:2]:
        errors = []
        for step in range(4):
            try:
                training.step() if late and step < 2 else step_with_moved_gradients(training, moved)
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")
        results.append((errors, training.result()))
    assert results[1] == results[0]


def old_step(training, state):
    state["step"] = 7


def state_of_another_size(training, state):
    state["exp_avg"] = Weight((2, 4), (Replicate(),)).tensor(training.mesh)


def plain_state(training, state):
    state["exp_avg"] = torch.ones(3)


def no_state(training, state):
    del state["exp_avg_sq"]


@pytest.mark.parametrize("implementation", ["single", "foreach", "fused"])
@pytest.mark.parametrize("damage", [old_step, state_of_another_size, plain_state, no_state])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("moved", [{}, {0: (Partial(),)}])
def test_after_an_error_in_one_parameter_values_are_torchs(implementation, damage, place, moved):
    """A state that torch refuses stops the step of all parameters where torch's step stops."""
    make = partial(torch.optim.AdamW, **_IMPLEMENTATIONS[implementation])
    results = []
    for training in pair(mesh_of(4), _MIXED, make)[:2]:
        step_with_moved_gradients(training, moved)
        step_with_moved_gradients(training, moved)
        damage(training, training.optimizer.state[training.parameters[place]])
        error = ""
        try:
            step_with_moved_gradients(training, moved)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        results.append((error, training.result()))
    assert results[1] == results[0]


@pytest.mark.parametrize("foreach", [False, True])
def test_buffers_that_a_step_makes_are_stored_in_the_state(foreach):
    """A first step of SGD with momentum, and a parameter used later, keep torch's buffers."""
    weights = [*_MIXED, Weight((6,), (Shard(0),), used=(False, True))]
    weights += [] if foreach else [Weight((3,), None, used=(False, False, True))]
    make = partial(torch.optim.SGD, momentum=0.9, foreach=foreach)
    torchs, ours, accelerated = pair(mesh_of(4), weights, make)
    assert outcome(ours, 7) == outcome(torchs, 7)
    assert accelerated.info().local == 3
