"""An accelerated optimizer computes what torch computes, to the last bit, or raises its error."""

import copy
import gc
import pickle
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from optimizer_pairs import Training, Weight, exact, pair
from outcomes import outcome
from small_world import mesh_of, placed
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.placement_types import _StridedShard
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import tree_map

from harness.contract import UsageError
from planners.dtensor.optimizer import obstacles
from planners.dtensor.optimizer.accelerate import accelerate_optimizer

IMPLEMENTATIONS: dict[str, dict[str, bool]] = {
    "single": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "torch's choice": {},
}
RULES: dict[str, dict[str, list[Any]]] = {
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
FUSED = ("SGD", "Adam", "AdamW", "Adagrad")
FAILS = {("Rprop", name) for name in IMPLEMENTATIONS} | {("SGD", "fused"), ("Adagrad", "fused")}

WEIGHTS = [Weight((8, 4), (Shard(0),)), Weight((5,), (Shard(0),)), Weight((3, 4), (Replicate(),))]
ADAMW = partial(torch.optim.AdamW, foreach=True)


# Random trainings: steps with anything that happens in between


def with_moved_gradient(kind: Placement, index: int) -> Callable[[Training], Any]:
    """Return a step for which torch has to move, or refuses to move, a gradient."""

    def act(training: Training) -> Any:
        training.grads()
        weight = training.weights[index]
        if weight.placements and weight.shape:
            placements = (kind, *[Replicate()] * (training.mesh.ndim - 1))
            grad = Weight(weight.shape, placements, weight.dtype).tensor(training.mesh)
            training.parameters[index].grad = grad
        return training.optimizer.step()

    return act


def with_state(change: Callable[[Training, dict[str, Any]], Any], index: int) -> Any:
    """Return a step after a change of the state of a parameter."""

    def act(training: Training) -> Any:
        torch.manual_seed(5)
        change(training, training.states()[index])
        return training.step()

    return act


def put(value: Callable[[Training, Any], Any]) -> Any:
    """Return a change that puts a value in place of the last state that is a DTensor."""

    def change(training: Training, state: dict[str, Any]) -> None:
        names = [name for name, old in state.items() if isinstance(old, DTensor)]
        if names:
            state[names[-1]] = value(training, state[names[-1]])

    return change


def scaled(training: Training, has_overflow: bool) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.zeros(()))
    training.grads()
    if has_overflow and training.parameters[0].grad is not None:
        training.parameters[0].grad.fill_(float("inf"))
    scaler.step(training.optimizer)


def saved_and_loaded(training: Training) -> None:
    training.optimizer.load_state_dict(copy.deepcopy(training.optimizer.state_dict()))


def reset(training: Training, set_to_none: bool) -> None:
    training.optimizer.zero_grad(set_to_none=set_to_none)
    training.optimizer.step()


def with_another_group(training: Training) -> None:
    torch.manual_seed(9)
    weight = Weight((6, 2), (Replicate(),) * training.mesh.ndim)
    training.weights = [*training.weights, weight]
    training.parameters.append(torch.nn.Parameter(weight.tensor(training.mesh)))
    training.optimizer.add_param_group({"params": training.parameters[-1:], "lr": 0.1})


def with_new_local_tensor(training: Training) -> None:
    parameter = training.parameters[0]
    if isinstance(parameter, DTensor):
        parameter._local_tensor = parameter._local_tensor.clone()


def under_mode(training: Training) -> Any:
    with CommDebugMode() as mode:
        training.step()
    return {str(op): count for op, count in mode.get_comm_counts().items()}


def with_options(**options: Any) -> Callable[[Training], Any]:
    return lambda training: training.optimizer.param_groups[0].update(options)


ACTS: dict[str, Callable[[Training], Any]] = {
    "step": lambda training: training.step(),
    "closure": lambda training: training.step(lambda: 7.0),
    **{
        f"gradient {index} moved from {kind}": with_moved_gradient(kind, index)
        for kind in (Partial(), Partial("max"), Replicate(), Shard(0))
        for index in (0, -1)
    },
    **{
        f"{name}, in state {index}": with_state(change, index)
        for name, change in {
            "an old step": lambda _, state: state and state.update(step=7),
            "no state": lambda _, state: state and state.popitem(),
            "another value": put(lambda _, old: old * 2),
            "another size": put(lambda it, _: Weight((2, 4), (Replicate(),)).tensor(it.mesh)),
            "a plain tensor": put(lambda it, _: torch.ones(3)),
        }.items()
        for index in (0, -1)
    },
    "scaled": lambda training: scaled(training, False),
    "overflow": lambda training: scaled(training, True),
    "save and load": saved_and_loaded,
    "no gradients": lambda training: reset(training, True),
    "zero gradients": lambda training: reset(training, False),
    "another group": with_another_group,
    "another local tensor": with_new_local_tensor,
    "mode": under_mode,
    "rate": with_options(lr=0.3),
    "no decay": with_options(weight_decay=0),
    "maximize": with_options(maximize=True),
    "capturable": with_options(capturable=True),
    "not capturable": with_options(capturable=False),
}


@st.composite
def makers(draw: st.DrawFn) -> Callable[..., torch.optim.Optimizer]:
    """Draw a rule, an implementation and options."""
    rule = draw(st.sampled_from(sorted(RULES)))
    names = [name for name in IMPLEMENTATIONS if name != "fused" or rule in FUSED]
    options = {name: draw(st.sampled_from(values)) for name, values in RULES[rule].items()}
    options |= IMPLEMENTATIONS[draw(st.sampled_from(names))]
    options |= {"maximize": draw(st.booleans()), "lr": draw(st.sampled_from([1e-3, 0.5]))}
    if rule != "Rprop":
        options["weight_decay"] = draw(st.sampled_from([0, 0.1]))
    return partial(getattr(torch.optim, rule), **options)


@st.composite
def weights(draw: st.DrawFn, ndim: int) -> list[Weight]:
    """Draw one to four weights; some are plain, are strided or lack gradients in some steps."""
    drawn = []
    shapes = ((8, 4), (5,), (3, 2), (1,), (0, 4), (2, 3, 4), ())
    for shape in draw(st.lists(st.sampled_from(shapes), min_size=1, max_size=4)):
        kinds = [Replicate(), *map(Shard, range(len(shape)))]
        placements: Any = st.tuples(*[st.sampled_from(kinds)] * ndim)
        if ndim == 2 and shape:
            placements |= st.just((_StridedShard(0, split_factor=2), Shard(0)))
        is_plain = draw(st.integers(0, 9)) == 0
        drawn.append(
            Weight(
                shape,
                None if is_plain else draw(placements),
                draw(st.sampled_from([torch.float32, torch.float32, torch.bfloat16])),
                draw(st.sampled_from([(True,), (True,), (True, False), (False, True, True)])),
            )
        )
    return drawn


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
    info = accelerated.info()
    with_grad = sum(parameter.grad is not None for parameter in ours.parameters)
    assert info.local + sum(info.by_torch.values()) <= with_grad + len(ours.parameters)


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


@pytest.mark.parametrize("rule", ["Muon", "Adafactor", "LBFGS"])
def test_other_rules_are_left_to_torch(rule):
    """An optimizer with a rule that is not supported stays torch's."""
    torchs, ours, accelerated = pair(mesh_of(4), WEIGHTS[2:], getattr(torch.optim, rule))
    assert vars(ours.optimizer).keys() == vars(torchs.optimizer).keys()
    assert accelerated.info() == (0, {obstacles.RULE: 1})


def test_a_rule_of_ones_own_is_left_to_torch():
    """A class derived from a rule of torch may compute anything."""

    class Mine(torch.optim.AdamW):
        pass

    _, ours, accelerated = pair(mesh_of(4), WEIGHTS, Mine)
    ours.step()
    assert accelerated.info() == (0, {obstacles.RULE: 3})


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


def test_modes_and_differentiable_steps_get_torchs_ops():
    """Under a mode, and with `differentiable`, torch takes the step."""
    _, ours, accelerated = pair(mesh_of(4), WEIGHTS, ADAMW)
    ours.step()
    under_mode(ours)
    assert accelerated.info() == (0, {obstacles.MODE: 3})
    ours.step()
    assert accelerated.info() == (3, {})
    _, ours, accelerated = pair(mesh_of(4), WEIGHTS, partial(torch.optim.SGD, differentiable=True))
    with pytest.raises(RuntimeError, match="leaf"):
        ours.step()
    assert accelerated.info() == (0, {obstacles.OPTIONS: 3})


@pytest.mark.filterwarnings("ignore:Found a non-scalar tensor")  # torch 2.15's own, of any step
def test_a_compiled_step_is_torchs():
    """`torch.compile` of a step has torch's values, and later steps are local again."""
    torchs, ours, accelerated = pair(mesh_of(4), WEIGHTS[:1], ADAMW)
    for training in (torchs, ours):
        torch._dynamo.reset()
        step = torch.compile(training.optimizer.step, backend="eager")
        for _ in range(3):
            training.grads()
            step()
        training.step()
    assert ours.result() == torchs.result()
    assert accelerated.info() == (1, {})


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


@pytest.mark.parametrize("is_first", [True, False])
def test_a_scheduler_made_before_or_after_sees_each_step(is_first):
    """A scheduler of learning rates gives no warning, and its rates count."""
    torchs, ours, accelerated = pair(mesh_of(4), WEIGHTS, ADAMW)
    if is_first:
        accelerated.stop()
    schedulers = [LambdaLR(each.optimizer, lambda step: 1 / (step + 1)) for each in (torchs, ours)]
    if is_first:
        accelerated = accelerate_optimizer(ours.optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            for training, scheduler in zip((torchs, ours), schedulers, strict=True):
                training.step()
                scheduler.step()
    assert ours.result() == torchs.result()
    assert accelerated.info() == (3, {})


def test_a_copy_and_a_pickle_are_torchs_optimizers():
    """A copied or pickled optimizer has the state, without the acceleration."""
    _, ours, _ = pair(mesh_of(4), WEIGHTS, ADAMW)
    ours.step()
    state = tree_map(partial(exact, has_versions=False), ours.optimizer.state_dict())
    for made in (copy.deepcopy(ours.optimizer), pickle.loads(pickle.dumps(ours.optimizer))):
        assert "_init_group" not in vars(made)
        assert tree_map(partial(exact, has_versions=False), made.state_dict()) == state


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_graph_notices_a_changed_parameter_where_torchs_does(implementation):
    """A backward pass over an earlier step raises torch's error, or none where torch has none."""
    make = partial(torch.optim.AdamW, **IMPLEMENTATIONS[implementation])
    errors = []
    for training in pair(mesh_of(4), WEIGHTS, make)[:2]:
        training.step()
        loss = training.parameters[0].pow(3).sum()
        of_local = training.parameters[0].to_local().pow(3).sum()
        training.step()
        of_local.backward()
        errors.append(str(outcome(loss.backward))[:60])
    assert errors[1] == errors[0]
    assert ("RuntimeError" in errors[0]) is (implementation in ("single", "torch's choice"))


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
