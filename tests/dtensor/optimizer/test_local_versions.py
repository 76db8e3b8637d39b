"""Autograd sees the changes of a step on local tensors as it sees those of torch's step."""

from functools import partial

import pytest
import torch
from optimizer_pairs import Weight, pair
from small_world import mesh_of, placed
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn.utils import clip_grad_norm_

WEIGHTS = [Weight((8, 4), (Shard(0),)), Weight((3, 4), (Replicate(),))]
IMPLEMENTATIONS = {
    "single": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "torch's choice": {},
}
RULES = {
    "SGD": {"momentum": 0.9},
    "Adam": {"amsgrad": True},
    "AdamW": {},
    "NAdam": {},
    "RAdam": {},
    "Adamax": {},
    "Adagrad": {},
    "Adadelta": {},
    "RMSprop": {"momentum": 0.9},
    "ASGD": {},
}


def versions(training):
    """Return the versions of all tensors of a training, and of their local tensors."""
    tensors = [
        tensor
        for parameter in training.parameters
        for tensor in (parameter, parameter.grad, *training.optimizer.state[parameter].values())
    ]
    local = [tensor._local_tensor for tensor in tensors if isinstance(tensor, DTensor)]
    return [tensor._version for tensor in (*tensors, *local)]


def raised(training, change):
    """Return by how much a call raises each version."""
    before = versions(training)
    change()
    return [after - old for after, old in zip(versions(training), before, strict=True)]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("has_moved_gradient", [False, True])
def test_a_step_raises_the_versions_that_torch_raises(rule, implementation, has_moved_gradient):
    """Versions rise as in torch's step, also when torch steps one of the parameters."""
    if implementation == "fused" and rule not in ("Adam", "AdamW"):
        pytest.skip("torch has no such step")
    options = {**RULES[rule], **IMPLEMENTATIONS[implementation], "weight_decay": 0.1}
    make = partial(getattr(torch.optim, rule), **options)
    torchs, ours, accelerated = pair(mesh_of(4), WEIGHTS, make)
    changes = []
    for training in (torchs, ours):
        training.step()
        training.step()
        training.grads()
        if has_moved_gradient:
            training.parameters[1].grad = Weight((3, 4), (Shard(0),)).tensor(training.mesh)
        changes.append([raised(training, training.optimizer.step) for _ in range(2)])
    assert changes[1] == changes[0]
    assert accelerated.info().local == 2 - has_moved_gradient


@pytest.mark.parametrize("foreach", [None, True, False])
def test_clipping_raises_the_versions_that_torch_raises(foreach):
    """Versions of clipped gradients rise as with torch's function."""
    torchs, ours, accelerated = pair(mesh_of(4), WEIGHTS, torch.optim.SGD)
    changes = []
    for training, clip in ((torchs, clip_grad_norm_), (ours, accelerated.clip_grad_norm_)):
        training.grads()
        call = partial(clip, training.parameters, 1e-3, foreach=foreach)
        changes.append(raised(training, call))
    assert changes[1] == changes[0]


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
        try:
            loss.backward()
            errors.append("")
        except RuntimeError as error:
            errors.append(str(error)[:60])
    assert errors[1] == errors[0]
    assert bool(errors[0]) is (implementation in ("single", "torch's choice"))


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
                moment = placed(mesh, state["exp_avg"].to_local().clone(), Shard(0))
                state["exp_avg"] = moment
            else:
                values = placed(mesh, torch.ones(2, 4), Shard(0))
                training.optimizer.param_groups[0]["params"][0] = values
                training.parameters[0] = torch.nn.Parameter(values, requires_grad=False)
                training.optimizer.param_groups[0]["params"] = training.parameters
        error = ""
        try:
            training.step()
        except RuntimeError as raised:
            error = str(raised)
        results.append((error, training.result()))
    assert results[1] == results[0]


@pytest.mark.parametrize("foreach", [None, True, False])
def test_inference_gradients_are_clipped_and_refused_as_by_torch(foreach):
    """Gradients that are inference tensors give torch's values and errors."""
    torchs, ours, accelerated = pair(mesh_of(4), WEIGHTS, torch.optim.SGD)
    results = []
    for training, clip in ((torchs, clip_grad_norm_), (ours, accelerated.clip_grad_norm_)):
        clip(training.parameters, 1e-3)
        with torch.inference_mode():
            training.grads()
        error = ""
        try:
            clip(training.parameters, 1e9, foreach=foreach)
        except RuntimeError as raised:
            error = str(raised)
        results.append((error, training.result()))
    assert results[1] == results[0]
