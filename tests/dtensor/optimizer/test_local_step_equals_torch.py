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


@pytest.mark.parametrize("foreach", [False, True])
def test_gradients_with_other_placements_are_left_to_torch(foreach):
    mesh = mesh_of(4)
    _, ours, accelerated = pair(mesh, _MIXED, partial(torch.optim.AdamW, foreach=foreach))
    ours.step()
    assert accelerated.info() == (3, {})
    ours.grads()
    ours.parameters[0].grad = Weight((8, 4), (Partial(),)).tensor(mesh)
    ours.parameters[2].grad = Weight((3, 4), (Shard(0),)).tensor(mesh)
    ours.optimizer.step()
    assert accelerated.info() == (1, {obstacles.PARTIAL: 1, obstacles.GRADIENT: 1})
