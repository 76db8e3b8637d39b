"""In-place ops, and ops with several results or with lists of tensors, have torch's results."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from outcomes import described, outcome
from small_world import counted, mesh_of, placed, running
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from planners.dtensor.cache.interned import InternedDispatch
from planners.dtensor.cache.self_checking import SelfChecking
from planners.dtensor.cache.shape_class import ShapeClass
from planners.dtensor.dispatch.base import Dispatch

pytestmark = pytest.mark.filterwarnings("ignore")

aten = torch.ops.aten

Tensors = list[DTensor]
Listed = Callable[[Tensors, Tensors, Tensors, float], Any]


def fused(x: Tensors, y: Tensors, z: Tensors, number: float, lr: Any) -> None:
    torch._fused_adamw_(
        x,
        y,
        z,
        [gradient.abs() for gradient in y],
        [],
        [torch.tensor(float(at + 1)) for at in range(len(x))],
        lr=lr,
        beta1=0.9,
        beta2=0.99,
        weight_decay=number,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )


ON_LISTS: dict[str, Listed] = {
    "add a number": lambda x, y, z, number: torch._foreach_add_(x, number),
    "add a list": lambda x, y, z, number: torch._foreach_add_(x, y, alpha=number),
    "add a tensor": lambda x, y, z, number: torch._foreach_add_(x, torch.tensor(number)),
    "multiply by a number": lambda x, y, z, number: torch._foreach_mul_(x, number),
    "multiply by a tensor": lambda x, y, z, number: torch._foreach_mul(x, torch.tensor(number)),
    "lerp": lambda x, y, z, number: torch._foreach_lerp_(x, y, number),
    "addcmul": lambda x, y, z, number: torch._foreach_addcmul_(x, y, z, number),
    "addcdiv by numbers": lambda x, y, z, number: torch._foreach_addcdiv_(
        x, y, z, [number + at for at in range(len(x))]
    ),
    "divide by numbers": lambda x, y, z, number: torch._foreach_div(x, [number] * len(x)),
    "root": lambda x, y, z, number: torch._foreach_sqrt(x),
    "norm": lambda x, y, z, number: torch._foreach_norm(x, 2 if number < 1 else 1),
    "maximum": lambda x, y, z, number: torch._foreach_maximum_(x, y),
    "copy": lambda x, y, z, number: torch._foreach_copy_(x, y),
    "zero": lambda x, y, z, number: torch._foreach_zero_(x),
    "stack": lambda x, y, z, number: torch.stack([x[0], y[0], x[0]], 1),
    "concatenate": lambda x, y, z, number: torch.cat([x[0], y[0]], -1),
    "index": lambda x, y, z, number: x[0][torch.tensor(0)],
    "largest": lambda x, y, z, number: [*x[0].max(0), *x[0].sort(-1)],
    "split": lambda x, y, z, number: [*x[0].split(2), *x[0].unbind(0), *x[0].chunk(2, -1)],
    "mean and variance": lambda x, y, z, number: torch.var_mean(x[0], 0),
    "layer norm": lambda x, y, z, number: torch.native_layer_norm(
        x[0], x[0].shape[-1:], None, None, 1e-5 * number
    ),
    "in place": lambda x, y, z, number: [
        x[0].add_(y[0], alpha=number),
        x[0].mul_(number),
        x[0].lerp_(y[0], number),
        x[0].addcmul_(y[0], z[0], value=number),
        x[0].addcdiv_(y[0], z[0], value=-number),
        x[0].clamp_(min=number),
        x[0].relu_(),
        x[0].copy_(y[0]),
        x[0].fill_(number),
        x[0].zero_(),
    ],
    "in place in whole numbers": lambda x, y, z, number: [x[0].add_(2), x[0].mul_(True)],
    "fused": lambda x, y, z, number: fused(x, y, z, number, number),
    "fused, the rate a tensor": lambda x, y, z, number: fused(
        x, y, z, number, torch.tensor(number)
    ),
    "lists of other lengths": lambda x, y, z, number: torch._foreach_add_(x, y[:-1]),
    "types that do not match": lambda x, y, z, number: x[0].long().lerp_(y[0], number),
}


def drawn(random: Random, mesh: DeviceMesh) -> list[Tensors]:
    """Return three lists of tensors; tensors at the same index mostly have equal placements."""
    lists: list[Tensors] = [[], [], []]
    for number in range(random.randint(1, 4)):
        shape = random.choice([(8,), (4, 8), (2, 4), (16, 2)])
        allowed: list[Placement] = [Replicate(), *map(Shard, range(len(shape)))]
        placements = [random.choice(allowed) for _ in mesh.shape]
        for tensors in lists:
            if random.random() < 0.05:
                placements = [random.choice([*allowed, Partial()]) for _ in mesh.shape]
            local = [*shape]
            for size, placement in zip(mesh.shape, placements, strict=True):
                if isinstance(placement, Shard):
                    local[placement.dim] = max(local[placement.dim] // size, 1)
            tensors.append(placed(mesh, counted(*local) / (number + 2), *placements))
    return lists


def outcomes(dispatch: Dispatch, mesh: DeviceMesh, name: str, seed: int) -> list[Any]:
    found: list[Any] = []
    with running(dispatch), torch.no_grad():
        for repeated in range(2):
            random = Random(seed)
            x, y, z = drawn(random, mesh)
            for number in (0.5, 0.25, 2.0):
                made = outcome(ON_LISTS[name], x, y, z, number)
                versions = [[tensor._version for tensor in listed] for listed in (x, y, z)]
                found.append([repeated, described(made), described([x, y, z]), versions])
    return found


@pytest.mark.parametrize("name", ON_LISTS)
@pytest.mark.parametrize("shape", [(4,), (2, 2)], ids=str)
def test_values_places_and_versions_are_torchs(name, shape):
    mesh = mesh_of(*shape)
    for seed in range(3):
        expected = outcomes(Dispatch(), mesh, name, seed)
        for dispatch in (ShapeClass(), SelfChecking(1)):
            assert outcomes(dispatch, mesh, name, seed) == expected


def parameters(mesh: DeviceMesh, count: int) -> list[torch.nn.Parameter]:
    """Return parameters of mixed shapes and placements, with gradients."""
    shapes, made = ((8, 4), (8,), (2, 4, 4)), []
    for number in range(count):
        local = counted(*shapes[number % 3]) / (number + 3)
        placement = Replicate() if number % 5 == 0 else Shard(min(number % 2, local.ndim - 1))
        made.append(torch.nn.Parameter(placed(mesh, local, placement)))
        made[-1].grad = placed(mesh, local.cos(), placement)
    return made


Make = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


def _made_by(kind: type[torch.optim.Optimizer], **options: Any) -> Make:
    return lambda weights: kind(weights, **{"lr": 0.1, **options})


OPTIMIZERS: dict[str, Make] = {
    f"{kind.__name__} {implementation}={on} {more}": _made_by(kind, **{implementation: on}, **more)
    for kind, implementations, extras in (
        (
            torch.optim.AdamW,
            (("foreach", False), ("foreach", True), ("fused", True)),
            ({}, {"amsgrad": True}, {"maximize": True}),
        ),
        (
            torch.optim.SGD,
            (("foreach", False), ("foreach", True)),
            ({"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}),
        ),
    )
    for implementation, on in implementations
    for more in extras
}
OPTIMIZERS["AdamW fused, the rate a tensor"] = lambda weights: torch.optim.AdamW(
    weights, lr=torch.tensor(0.1), fused=True
)


def trained(dispatch: Dispatch, mesh: DeviceMesh, make: Make, steps: int) -> list[Any]:
    """Return parameters and optimizer state after `steps` steps with a decaying learning rate."""
    weights = parameters(mesh, 7)
    optimizer = make(weights)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    with running(dispatch):
        for step in range(steps):
            norm = torch.nn.utils.get_total_norm([weight.grad for weight in weights])
            optimizer.step()
            schedule.step()
            for weight in weights:
                weight.grad = weight.grad * (1.0 + step)
    states = [optimizer.state[weight] for weight in weights]
    return described([norm.placements, weights, *[[*state.values()] for state in states]])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_leaves_the_same_bits(name):
    mesh = mesh_of(4)
    expected = trained(Dispatch(), mesh, OPTIMIZERS[name], 4)
    for dispatch in (InternedDispatch(), SelfChecking(0.3)):
        assert trained(dispatch, mesh, OPTIMIZERS[name], 4) == expected


def test_numbers_are_no_part_of_a_key():
    mesh = mesh_of(4)
    x, y = (placed(mesh, counted(2, 8), Shard(0)) for _ in range(2))
    with running(InternedDispatch()) as dispatch, torch.no_grad():
        for number in range(30):
            x.mul_(1 + number / 8)
            x.add_(y, alpha=number / 4)
            x.addcmul_(y, y, value=number / 2)
            torch._foreach_add_([x, y], number / 8)
            torch._foreach_div_([x, y], [number + 1.0, 2.0])
            torch._foreach_mul_([x, y], torch.tensor(number / 4))
        assert dispatch.cache_info()[:3] == (6 * 29, 6, 6)
