"""An accelerated optimizer computes what torch computes, to the last bit, or raises its error."""

import copy
import gc
import pickle
import weakref
from functools import partial

import pytest
import torch
from hypothesis import given, strategies as st
from outcomes import outcome
from small_world import mesh_of, placed
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import tree_map
from trainings import (
    ACTS,
    FUSED,
    IMPLEMENTATIONS,
    RULES,
    Weight,
    exact,
    makers,
    pair,
    under_mode,
    weights,
)

from harness.contract import UsageError
from planners.dtensor.optimizer import obstacles
from planners.dtensor.optimizer.accelerate import accelerate_optimizer

FAILS = {("Rprop", name) for name in IMPLEMENTATIONS} | {("SGD", "fused"), ("Adagrad", "fused")}

WEIGHTS = [Weight((8, 4), (Shard(0),)), Weight((5,), (Shard(0),)), Weight((3, 4), (Replicate(),))]
ADAMW = partial(torch.optim.AdamW, foreach=True)


@pytest.mark.filterwarnings("ignore")
@given(
    data=st.data(),
    make=makers(),
    shape=st.sampled_from([(4,), (3,), (2, 2)]),
    acts=st.lists(st.sampled_from(["step", "step", "switch", *ACTS]), max_size=8),
)
def test_whatever_happens_between_steps_all_tensors_are_torchs(data, make, shape, acts):
    """Parameters, gradients, states, versions and errors are torch's after each act."""
    torchs, ours, accelerated = pair(mesh_of(*shape), data.draw(weights(len(shape))), make)
    for act in ["step", "step", *acts]:
        if act == "switch":
            is_on = "_init_group" in vars(ours.optimizer)
            accelerated.stop()
            if not is_on:
                accelerated = accelerate_optimizer(ours.optimizer)
        else:
            assert outcome(ACTS[act], ours) == outcome(ACTS[act], torchs), act
            assert ours.result() == torchs.result(), act


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("rule", RULES)
def test_steps_are_torchs_and_local(rule, implementation):
    """Fifty steps are torch's, on local tensors, except where `FAILS` says."""
    if implementation == "fused" and rule not in FUSED:
        pytest.skip("torch has no such step")
    make = partial(getattr(torch.optim, rule), **IMPLEMENTATIONS[implementation])
    used = [*WEIGHTS, Weight((6,), (Shard(0),), used=(False, True))]
    torchs, ours, accelerated = pair(mesh_of(4), used, make)
    for training in (torchs, ours):
        for _ in range(50):
            error = outcome(training.step)
    assert ours.result() == torchs.result()
    fails = (rule, implementation) in FAILS
    assert (accelerated.info().local == 0) is fails, error
    assert bool(accelerated.info().by_torch) is fails


# What torch steps


class Derived(torch.optim.AdamW):
    """A rule of one's own, which may compute anything."""


@pytest.mark.parametrize("rule", [torch.optim.Adafactor, torch.optim.LBFGS, Derived])
def test_other_rules_are_left_to_torch(rule):
    """An optimizer with a rule that is not supported stays torch's."""
    torchs, ours, accelerated = pair(mesh_of(4), WEIGHTS[2:], rule)
    assert vars(ours.optimizer).keys() == vars(torchs.optimizer).keys()
    assert accelerated.info() == (0, {obstacles.RULE: 1})


@pytest.mark.parametrize("implementation", ["single", "foreach", "fused"])
def test_gradients_with_other_placements_are_left_to_torch(implementation):
    """Torch steps weights whose gradient it has to move; lists of them at first as a whole."""
    make = partial(torch.optim.AdamW, **IMPLEMENTATIONS[implementation])
    torchs, ours, accelerated = pair(mesh_of(4), WEIGHTS, make)
    for training in (torchs, ours):
        training.step()
    assert accelerated.info() == (3, {})
    for first in (True, False):
        for training in (torchs, ours):
            training.grads()
            for index, placements in ((0, (Partial(),)), (2, (Shard(0),))):
                grad = Weight(WEIGHTS[index].shape, placements).tensor(training.mesh)
                training.parameters[index].grad = grad
            training.optimizer.step()
        together = {obstacles.TOGETHER: 1} if first and implementation != "single" else {}
        of_torch = {obstacles.PARTIAL: 1, obstacles.GRADIENT: 1, **together}
        assert accelerated.info() == (0 if together else 1, of_torch)
        assert ours.result() == torchs.result()


@pytest.mark.filterwarnings("ignore:Found a non-scalar tensor")  # torch 2.15's own, of any step
def test_watched_and_differentiable_steps_are_torchs():
    """Under a mode or a compiler, and with `differentiable`, torch takes the step."""
    torchs, ours, accelerated = pair(mesh_of(4), WEIGHTS, ADAMW)
    for training in (torchs, ours):
        training.step()
        under_mode(training)
    assert accelerated.info() == (0, {obstacles.MODE: 3})
    for training in (torchs, ours):
        torch._dynamo.reset()
        step = torch.compile(training.optimizer.step, backend="eager")
        for _ in range(3):
            training.grads()
            step()
        training.step()
    assert ours.result() == torchs.result()
    assert accelerated.info() == (3, {})
    _, ours, accelerated = pair(mesh_of(4), WEIGHTS, partial(torch.optim.SGD, differentiable=True))
    with pytest.raises(RuntimeError, match="leaf"):
        ours.step()
    assert accelerated.info() == (0, {obstacles.OPTIONS: 3})


# What others see


def test_hooks_and_closures_are_called_in_torchs_order():
    """Hooks of an optimizer, of all optimizers and closures see the same tensors in one order."""
    orders = []
    for training in pair(mesh_of(4), WEIGHTS, ADAMW)[:2]:
        order: list[object] = []

        def note(name, order=order, training=training):
            return lambda optimizer, args, _: order.append(
                (name, optimizer is training.optimizer, len(args), training.result())
            )

        training.optimizer.register_step_pre_hook(note("before"))
        training.optimizer.register_step_post_hook(note("after"))
        everywhere = register_optimizer_step_post_hook(note("everywhere"))

        def closure(order=order, training=training):
            order.append(("closure", torch.is_grad_enabled(), training.result()))
            return 7.0

        order.append([training.step(closure) for _ in range(3)])
        everywhere.remove()
        orders.append(order)
    assert orders[1] == orders[0]


def test_a_copy_and_a_pickle_are_torchs_optimizers():
    """A copied or pickled optimizer has the state, without the acceleration."""
    _, ours, _ = pair(mesh_of(4), WEIGHTS, ADAMW)
    ours.step()
    state = tree_map(partial(exact, has_versions=False), ours.optimizer.state_dict())
    for made in (copy.deepcopy(ours.optimizer), pickle.loads(pickle.dumps(ours.optimizer))):
        assert "_init_group" not in vars(made)
        assert tree_map(partial(exact, has_versions=False), made.state_dict()) == state


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("has_state", [False, True])
def test_inference_tensors_are_stepped_and_refused_as_by_torch(implementation, has_state):
    """Weights, or states alone, that are inference tensors give torch's values and errors."""
    mesh, results = mesh_of(4), []
    make = partial(torch.optim.AdamW, **IMPLEMENTATIONS[implementation])
    for training in pair(mesh, WEIGHTS[:1], make)[:2]:
        training.step()
        training.step()
        state = training.optimizer.state[training.parameters[0]]
        with torch.inference_mode():
            if has_state:
                state["exp_avg"] = placed(mesh, state["exp_avg"].to_local().clone(), Shard(0))
            else:
                values = placed(mesh, torch.ones(2, 4), Shard(0))
                training.parameters[0] = torch.nn.Parameter(values, requires_grad=False)
                training.optimizer.param_groups[0]["params"] = training.parameters
        results.append((outcome(training.step), training.result()))
    assert results[1] == results[0]


# Switching on and off


def test_what_cannot_be_accelerated_is_refused():
    """A second acceleration, and anything but an optimizer, is refused; stopping twice is one."""
    _, ours, accelerated = pair(mesh_of(4), WEIGHTS, ADAMW)
    with pytest.raises(UsageError, match="accelerated already"):
        accelerate_optimizer(ours.optimizer)
    with pytest.raises(UsageError, match="ParameterList"):
        accelerate_optimizer(torch.nn.ParameterList(ours.parameters))
    accelerated.stop()
    accelerated.stop()
    accelerate_optimizer(ours.optimizer).stop()


def test_the_optimizer_can_be_deleted():
    """An acceleration keeps no optimizer alive, and keeps its counts."""
    _, ours, accelerated = pair(mesh_of(4), WEIGHTS, ADAMW)
    ours.step()
    optimizer = weakref.ref(ours.optimizer)
    del ours
    gc.collect()
    assert optimizer() is None
    accelerated.stop()
    assert accelerated.info() == (3, {})


def test_another_release_of_torch_is_left_alone(monkeypatch):
    """On an untested release a warning is given and nothing changes, unless the user insists."""
    monkeypatch.setattr(torch, "__version__", "9.8.7")
    with pytest.warns(UserWarning, match=r"accelerate_optimizer\(\) was tested"):
        torchs, ours, _ = pair(mesh_of(4), WEIGHTS, ADAMW)
    assert vars(ours.optimizer).keys() == vars(torchs.optimizer).keys()
    insisting = accelerate_optimizer(ours.optimizer, any_release=True)
    ours.step()
    assert insisting.info() == (3, {})
