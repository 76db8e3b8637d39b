"""Pairs of equal trainings, of which one is accelerated; random ones, and acts between steps."""

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from hypothesis import strategies as st
from outcomes import outcome
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.placement_types import _StridedShard
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from planners.dtensor.optimizer.accelerate import accelerate_optimizer


@dataclass(frozen=True)
class Weight:
    """A parameter: its global shape and placements; without placements it is no DTensor."""

    shape: tuple[int, ...]
    placements: tuple[Placement, ...] | None
    dtype: torch.dtype = torch.float32
    used: tuple[bool, ...] = (True,)  # whether it has a gradient, step by step, repeated

    def tensor(self, mesh: DeviceMesh) -> torch.Tensor:
        """Return random values with this shape and these placements."""
        if self.placements is None:
            return torch.randn(self.shape).to(self.dtype)
        whole = torch.Size(self.shape)
        local, _ = compute_local_shape_and_global_offset(whole, mesh, self.placements)
        stride = torch.empty(whole, device="meta").stride()
        part = torch.randn(tuple(local)).to(self.dtype)
        return DTensor.from_local(
            part, mesh, self.placements, run_check=False, shape=whole, stride=stride
        )


@dataclass
class Training:
    """Weights with an optimizer, and a step with new gradients."""

    mesh: DeviceMesh
    weights: Sequence[Weight]
    make: Callable[..., Optimizer]
    taken: int = 0
    parameters: list[torch.nn.Parameter] = field(default_factory=list)

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.parameters = [torch.nn.Parameter(each.tensor(self.mesh)) for each in self.weights]
        self.optimizer = self.make(self.parameters)

    def grads(self) -> None:
        """Set new gradients, the same in all trainings after as many steps."""
        torch.manual_seed(self.taken + 1)
        for weight, parameter in zip(self.weights, self.parameters, strict=True):
            has_grad = weight.used[self.taken % len(weight.used)]
            grad = weight.tensor(self.mesh)
            parameter.grad = grad if has_grad else None
        self.taken += 1

    def step(self, *closure: Callable[[], float]) -> Any:
        """Take one step with new gradients."""
        self.grads()
        return self.optimizer.step(*closure)

    def result(self) -> list[Any]:
        """Return parameters, gradients and states, to the last bit and version."""
        states = [self.optimizer.state.get(each, {}) for each in self.parameters]
        return [
            [exact(each) for each in self.parameters],
            [exact(each.grad) for each in self.parameters],
            [{name: exact(value) for name, value in state.items()} for state in states],
            len(self.optimizer.state),
        ]


def exact(value: Any, has_versions: bool = True) -> Any:
    """Return a tensor's class, placements, types, bits, and how often it was changed in place."""
    if not isinstance(value, torch.Tensor):
        return value
    local = value._local_tensor if isinstance(value, DTensor) else value
    placed = str(value.placements) if isinstance(value, DTensor) else ""
    bits = local.detach().contiguous().flatten().view(torch.uint8).tolist()
    versions = [
        None if tensor.is_inference() or not has_versions else tensor._version
        for tensor in (value, local)
    ]
    return type(value), placed, value.dtype, value.shape, value.stride(), bits, versions


def pair(
    mesh: DeviceMesh, weights: Sequence[Weight], make: Callable[..., Optimizer]
) -> tuple[Training, Training, accelerate_optimizer]:
    """Return a training by torch, an equal one that is accelerated, and its acceleration."""
    torchs, ours = (Training(mesh, weights, make) for _ in range(2))
    return torchs, ours, accelerate_optimizer(ours.optimizer)


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


# Acts between steps


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


def with_state(name: str, index: int) -> Callable[[Training], Any]:
    """Return a step after a change of the state of a parameter."""

    def act(training: Training) -> Any:
        torch.manual_seed(5)
        state = training.optimizer.state.get(training.parameters[index], {})
        tensors = [key for key, old in state.items() if isinstance(old, DTensor)]
        if name == "old" and state:
            state.update(step=7)
        elif name == "missing" and state:
            state.popitem()
        elif name == "of another size" and tensors:
            state[tensors[-1]] = Weight((2, 4), (Replicate(),)).tensor(training.mesh)
        elif name == "plain" and tensors:
            state[tensors[-1]] = torch.ones(3)
        return training.step()

    return act


def scaled(training: Training) -> None:
    """Step with a scaler, which finds a gradient that is not finite."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.zeros(()))
    training.grads()
    if training.parameters[0].grad is not None and training.taken % 2:
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


def scheduled(training: Training) -> None:
    """Step with a scheduler, which warns if it sees no step."""
    scheduler = LambdaLR(training.optimizer, lambda step: 1 / (step + 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training.step()
        scheduler.step()


def backward_over(training: Training) -> str:
    """Return the result of a backward pass over a step, an error if the graph notices the step."""
    loss = training.parameters[0].pow(3).sum()
    training.step()
    return str(outcome(loss.backward))[:60]


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
        f"state {index} {name}": with_state(name, index)
        for name in ("old", "missing", "of another size", "plain")
        for index in (0, -1)
    },
    "scaled": scaled,
    "save and load": saved_and_loaded,
    "no gradients": lambda training: reset(training, True),
    "zero gradients": lambda training: reset(training, False),
    "another group": with_another_group,
    "another local tensor": with_new_local_tensor,
    "mode": under_mode,
    "scheduler": scheduled,
    "backward": backward_over,
    "rate": with_options(lr=0.3),
    "no decay": with_options(weight_decay=0),
    "capturable": with_options(capturable=True),
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
        drawn.append(
            Weight(
                shape,
                None if draw(st.integers(0, 9)) == 0 else draw(placements),
                draw(st.sampled_from([torch.float32, torch.float32, torch.bfloat16])),
                draw(st.sampled_from([(True,), (True,), (True, False), (False, True, True)])),
            )
        )
    return drawn
