"""All that users do with an optimizer works as before, and nothing is left when it stops."""

import copy
import gc
import pickle
import warnings
import weakref
from functools import partial

import pytest
import torch
from optimizer_pairs import Weight, exact, pair
from small_world import mesh_of
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import tree_map

from harness.contract import UsageError
from planners.dtensor.optimizer import accelerate, obstacles
from planners.dtensor.optimizer.accelerate import accelerate_optimizer

WEIGHTS = [Weight((8, 4), (Shard(0),)), Weight((5,), (Shard(0),)), Weight((3, 4), (Replicate(),))]
ADAMW = partial(torch.optim.AdamW, foreach=True)


@pytest.fixture(params=["single", "foreach", "fused"])
def trainings(request):
    """An AdamW of torch, an equal one that is accelerated, and its acceleration."""
    name = request.param
    make = partial(torch.optim.AdamW, foreach=name == "foreach", fused=name == "fused")
    return pair(mesh_of(4), WEIGHTS, make)


def both(torchs, ours, steps=3):
    for _ in range(steps):
        torchs.step()
        ours.step()
    assert ours.result() == torchs.result()


def test_states_are_saved_and_loaded(trainings):
    torchs, ours, accelerated = trainings
    both(torchs, ours)
    saved = [copy.deepcopy(each.optimizer.state_dict()) for each in (torchs, ours)]
    assert tree_map(exact, saved[1]) == tree_map(exact, saved[0])
    both(torchs, ours)
    for training, state in zip((torchs, ours), saved[::-1], strict=True):
        training.optimizer.load_state_dict(state)
    both(torchs, ours)
    assert accelerated.info() == (3, {})


def test_hooks_and_closures_are_called_in_torchs_order():
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


@pytest.mark.parametrize("is_first", [True, False])
def test_a_scheduler_made_before_or_after_sees_each_step(is_first):
    torchs, ours, accelerated = pair(mesh_of(4), WEIGHTS, ADAMW)
    if is_first:
        accelerated.stop()
    schedulers = [LambdaLR(each.optimizer, lambda step: 1 / (step + 1)) for each in (torchs, ours)]
    if is_first:
        accelerated = accelerate_optimizer(ours.optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            both(torchs, ours, 1)
            for scheduler in schedulers:
                scheduler.step()
    assert accelerated.info() == (3, {})


@pytest.mark.parametrize("fused", [False, True])
def test_a_gradient_scaler_skips_and_scales_as_with_torch(fused):
    torchs, ours, accelerated = pair(
        mesh_of(4), WEIGHTS, partial(torch.optim.AdamW, fused=fused, foreach=False)
    )
    for step in range(4):
        for training in (torchs, ours):
            scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
            scaler.scale(torch.zeros(()))
            training.grads()
            training.taken += 1
            if step == 2:
                training.parameters[0].grad.fill_(float("inf"))
            scaler.step(training.optimizer)
        assert ours.result() == torchs.result()
    assert accelerated.info() == (3, {})


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_are_reset_and_groups_are_added(trainings, set_to_none):
    torchs, ours, accelerated = trainings
    both(torchs, ours)
    for training in (torchs, ours):
        training.optimizer.zero_grad(set_to_none=set_to_none)
        training.optimizer.step()
        torch.manual_seed(9)
        weight = Weight((6, 2), (Shard(1),))
        training.weights = [*training.weights, weight]
        training.parameters.append(torch.nn.Parameter(weight.tensor(training.mesh)))
        training.optimizer.add_param_group({"params": training.parameters[-1:], "lr": 0.1})
    both(torchs, ours)
    assert accelerated.info() == (4, {})


def test_a_copy_and_a_pickle_are_torchs_optimizers(trainings):
    _, ours, _ = trainings
    ours.step()
    ours.step()
    for made in (copy.deepcopy(ours.optimizer), pickle.loads(pickle.dumps(ours.optimizer))):
        assert "_init_group" not in vars(made)
        assert tree_map(exact, made.state_dict()) == tree_map(exact, ours.optimizer.state_dict())


def test_it_is_switched_on_and_off_between_steps(trainings):
    torchs, ours, accelerated = trainings
    accelerated.stop()
    for _ in range(3):
        both(torchs, ours, 2)
        with accelerate_optimizer(ours.optimizer) as accelerated:
            both(torchs, ours, 2)
    assert accelerated.info() == (3, {})
    assert vars(ours.optimizer).keys() == vars(torchs.optimizer).keys()


def test_other_learning_rates_and_switches_are_noticed(trainings):
    torchs, ours, accelerated = trainings
    for options in ({"lr": 0.5}, {"lr": 0.0}, {"maximize": True}, {"weight_decay": 0}, {"lr": 0.1}):
        for training in (torchs, ours):
            training.optimizer.param_groups[0].update(options)
        both(torchs, ours, 2)
    assert accelerated.info() == (3, {})


def test_a_changed_local_tensor_or_state_is_noticed(trainings):
    torchs, ours, _ = trainings
    both(torchs, ours)
    for training in (torchs, ours):
        parameter = training.parameters[0]
        parameter._local_tensor = parameter._local_tensor.clone()
        state = training.optimizer.state[parameter]
        state["exp_avg"] = state["exp_avg"] * 2
    both(torchs, ours)


def test_a_mode_sees_torchs_ops():
    torchs, ours, accelerated = pair(mesh_of(4), WEIGHTS, ADAMW)
    both(torchs, ours)
    ops = []
    for training in (torchs, ours):
        with CommDebugMode() as mode:
            training.step()
        ops.append(mode.get_comm_counts())
    assert ops[1] == ops[0]
    assert accelerated.info() == (0, {obstacles.MODE: 3})
    both(torchs, ours)
    assert accelerated.info() == (3, {})


@pytest.mark.filterwarnings("ignore:Found a non-scalar tensor")  # torch 2.15's own, of any step
def test_a_compiled_step_is_torchs():
    torchs, ours, accelerated = pair(mesh_of(4), WEIGHTS[:1], ADAMW)
    for training in (torchs, ours):
        torch._dynamo.reset()
        step = torch.compile(training.optimizer.step, backend="eager")
        for _ in range(3):
            training.grads()
            training.taken += 1
            step()
    assert ours.result() == torchs.result()
    both(torchs, ours)
    assert accelerated.info() == (1, {})


def test_an_error_of_torch_is_torchs_and_the_next_step_too():
    torchs, ours, _ = pair(mesh_of(4), WEIGHTS, ADAMW)
    both(torchs, ours)
    errors = []
    for training in (torchs, ours):
        training.optimizer.param_groups[0]["capturable"] = True
        with pytest.raises(AssertionError) as raised:
            training.step()
        errors.append(str(raised.value))
        training.optimizer.param_groups[0]["capturable"] = False
    assert errors[1] == errors[0]
    both(torchs, ours)


def test_differentiable_steps_are_torchs():
    torchs, ours, accelerated = pair(
        mesh_of(4), WEIGHTS, partial(torch.optim.SGD, differentiable=True)
    )
    for training in (torchs, ours):
        with pytest.raises(RuntimeError, match="leaf"):
            training.step()
    assert accelerated.info() == (0, {obstacles.OPTIONS: 3})


def test_what_cannot_be_accelerated_is_refused():
    _, ours, accelerated = pair(mesh_of(4), WEIGHTS, ADAMW)
    with pytest.raises(UsageError, match="accelerated already"):
        accelerate_optimizer(ours.optimizer)
    with pytest.raises(UsageError, match="ParameterList"):
        accelerate_optimizer(torch.nn.ParameterList(ours.parameters))
    accelerated.stop()
    accelerated.stop()
    accelerate_optimizer(ours.optimizer).stop()


def test_the_optimizer_can_be_deleted():
    _, ours, accelerated = pair(mesh_of(4), WEIGHTS, ADAMW)
    ours.step()
    ours.step()
    optimizer = weakref.ref(ours.optimizer)
    del ours
    gc.collect()
    assert optimizer() is None
    accelerated.stop()
    assert accelerated.info() == (3, {})


def test_another_release_of_torch_is_left_alone(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "9.8.7")
    with pytest.warns(UserWarning, match=r"accelerate_optimizer\(\) was tested"):
        torchs, ours, _ = pair(mesh_of(4), WEIGHTS, ADAMW)
    assert vars(ours.optimizer).keys() == vars(torchs.optimizer).keys()
    both(torchs, ours)
    insisting = accelerate_optimizer(ours.optimizer, any_release=True)
    both(torchs, ours)
    assert insisting.info() == (3, {})
    assert accelerate.SUPPORTED.include("2.13.0+cpu")
