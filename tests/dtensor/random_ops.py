"""Ops for random programs: each has a name, a number of tensors, and works at any sizes."""

import operator
from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard
from torch.nn import functional

from planners.dtensor.dispatch.torch_path import ops_with_strategies
from planners.dtensor.search.tensor_meta import is_pointwise

aten = torch.ops.aten

Op = Callable[..., Any]
Drawn = tuple[str, Op, int]
"""A name, an op of a mesh and of tensors on it, and the number of those tensors."""
Drawer = Callable[[Random, int], Drawn]


def random_placements(random: Random, mesh: DeviceMesh, ndim: int) -> tuple[Placement, ...]:
    """Draw a placement for each mesh dimension."""
    allowed: list[Placement] = [Replicate(), *map(Shard, range(ndim)), *map(Shard, range(ndim))]
    if random.random() < 0.3:
        allowed += [Partial(random.choice(["sum", "sum", "avg", "max", "min"]))] * 2
    drawn = [random.choice(allowed) for _ in mesh.shape]
    if mesh.ndim == 2 and drawn == [Shard(0), Shard(0)] and random.random() < 0.15:
        return _StridedShard(0, split_factor=mesh.shape[1]), Shard(0)
    return tuple(drawn)


def _local(op: Op) -> Op:
    return lambda mesh, *operands: op(*operands)


def _of_elements(op: Op) -> Op:
    """Exclude tensors without elements: torch 2.13 searches for a view of them without end."""

    def checked(mesh: DeviceMesh, *operands: Any) -> Any:
        if not all(tensor.numel() for tensor in operands if isinstance(tensor, torch.Tensor)):
            raise ValueError("no elements")
        return op(*operands)

    return checked


def _of(module: Any, names: str) -> list[tuple[str, Op]]:
    """Return the functions of these names."""
    return [(name, getattr(module, name)) for name in names.split()]


# `pointwise` draws all ops of torch's pointwise strategy, so few of these are in the tables.
_ONE: list[tuple[str, Op]] = [
    *_of(torch, "relu neg clone detach zeros_like triu"),
    ("contiguous", lambda x: x.contiguous()),
    ("to half", lambda x: x.half()),
    ("to int", lambda x: x.long()),
    ("gelu by tanh", lambda x: functional.gelu(x, approximate="tanh")),
    ("ones_like", lambda x: torch.ones_like(x, dtype=torch.float64)),
    ("full_like", lambda x: torch.full_like(x, 2.5)),
    ("new_zeros", lambda x: x.new_zeros(x.shape)),
    ("dropout", lambda x: functional.dropout(x, 0.0)),
]

_WITH_NUMBER: list[tuple[str, Op]] = [
    *_of(operator, "add mul truediv pow gt"),
    ("rsub", lambda x, n: n - x),
    ("rpow", lambda x, n: n**x),
    ("clamp both", lambda x, n: torch.clamp(x, -1, n)),
    ("masked_fill", lambda x, n: x.masked_fill(x > 0, n)),
    ("floor_divide", lambda x, n: torch.div(x, n or 2, rounding_mode="floor")),
    ("scalar tensor", lambda x, n: x * torch.tensor(n)),
    ("scalar tensor first", lambda x, n: torch.tensor(n) + x),
    ("where", lambda x, n: torch.where(x > 0, x, n)),
    ("add alpha", lambda x, n: torch.add(x, 1, alpha=n)),
]

_TWO: list[tuple[str, Op]] = [
    *_of(torch, "add mul mm mm mm matmul bmm equal"),
    ("add twice", lambda x, y: torch.add(x, y, alpha=2)),
    ("where", lambda x, y: torch.where(x > 0, x, y)),
    ("mm t", lambda x, y: torch.mm(x, y.t())),
    ("t mm", lambda x, y: torch.mm(x.t(), y)),
    ("bmm t", lambda x, y: torch.bmm(x, y.transpose(1, 2))),
    ("linear", functional.linear),
    ("cat", lambda x, y: torch.cat([x, y])),
    ("cat last", lambda x, y: torch.cat([x, y], -1)),
    ("stack", lambda x, y: torch.stack([x, y])),
    ("expand_as", lambda x, y: x.expand_as(y)),
    ("foreach", lambda x, y: torch._foreach_add([x, y], 1.0)),
]

_THREE: list[tuple[str, Op]] = [
    *_of(torch, "addmm addmm baddbmm"),
    ("addmm scaled", lambda x, y, z: torch.addmm(x, y, z, beta=2, alpha=0.5)),
    ("where", lambda x, y, z: torch.where(x > 0, y, z)),
    ("linear", functional.linear),
]

_IN_PLACE: list[tuple[str, Op, int]] = [
    ("add number_", lambda x: x.add_(1), 1),
    ("mul_", lambda x, y: x.mul_(y), 2),
    ("zero_", lambda x: x.zero_(), 1),
    ("copy_", lambda x, y: x.copy_(y), 2),
    ("addcmul_", lambda x, y, z: x.addcmul_(y, z, value=0.5), 3),
    ("fill_", lambda x: x.fill_(2), 1),
    ("view and add_", lambda x: x.t().add_(1), 1),
    ("out_", lambda x, y: torch.add(x, 1, out=y), 2),
    ("mm out_", lambda x, y, z: torch.mm(x, y, out=z), 3),
    ("unsqueeze_", lambda x: x.clone().unsqueeze_(0), 1),
    ("squeeze_", lambda x: x.clone().squeeze_(0), 1),
    ("t_", lambda x: x.clone().t_(), 1),
]

Tensors = list[DTensor]


def _fused(x: Tensors, y: Tensors, z: Tensors, number: float, lr: Any) -> None:
    steps = [torch.tensor(float(at + 1)) for at in range(len(x))]
    rates = {"lr": lr, "beta1": 0.9, "beta2": 0.99, "weight_decay": number, "eps": 1e-8}
    squares = [gradient.abs() for gradient in y]
    torch._fused_adamw_(x, y, z, squares, [], steps, **rates, amsgrad=False, maximize=False)


_ON_LISTS: list[tuple[str, Callable[[Tensors, Tensors, Tensors, float], Any]]] = [
    ("add number", lambda x, y, z, number: torch._foreach_add_(x, number)),
    ("add", lambda x, y, z, number: torch._foreach_add_(x, y, alpha=number)),
    ("add tensor", lambda x, y, z, number: torch._foreach_add_(x, torch.tensor(number))),
    ("add shorter", lambda x, y, z, number: torch._foreach_add_(x, y[:1])),
    ("mul", lambda x, y, z, number: torch._foreach_mul(x, torch.tensor(number))),
    ("lerp", lambda x, y, z, number: torch._foreach_lerp_(x, y, number)),
    ("addcmul", lambda x, y, z, number: torch._foreach_addcmul_(x, y, z, number)),
    ("addcdiv", lambda x, y, z, number: torch._foreach_addcdiv_(x, y, z, [number, 1.0])),
    ("sqrt", lambda x, y, z, number: torch._foreach_sqrt(x)),
    ("norm", lambda x, y, z, number: torch._foreach_norm(x, 2 if number < 1 else 1)),
    ("copy", lambda x, y, z, number: torch._foreach_copy_(x, y)),
    ("fused", lambda x, y, z, number: _fused(x, y, z, number, number)),
    ("fused, tensor", lambda x, y, z, number: _fused(x, y, z, number, torch.tensor(number))),
]


def _on_lists(random: Random, width: int) -> Drawn:
    name, op = random.choice(_ON_LISTS)
    number = random.choice([0.5, 0.25, 2.0])

    def on_lists(mesh: DeviceMesh, x: DTensor, y: DTensor) -> Any:
        return op([x, y], [x * 2, y * 2], [x * x + 1, y * y + 1], number), x, y

    return f"{name} {number} of lists_", on_lists, 2


def _any_of(table: list[tuple[str, Op]], arity: int, wrapped: Callable[[Op], Op]) -> Drawer:
    def drawn(random: Random, width: int) -> Drawn:
        name, op = random.choice(table)
        return name, wrapped(op), arity

    return drawn


def _with_number(random: Random, width: int) -> Drawn:
    number = random.choice([0, 1, 2, 3, -1, 1.0, 2.0, 0.5, True, False])
    name, op = random.choice(_WITH_NUMBER)
    return f"{name} {number!r}", lambda mesh, x: op(x, number), 1


def _in_place(random: Random, width: int) -> Drawn:
    name, op, arity = random.choice(_IN_PLACE)
    return name, _local(op), arity


def _view(random: Random, width: int) -> Drawn:
    one, other = random.choice([(0, 1), (0, -1), (1, 2), (-2, -1)])
    name, op = random.choice(
        [
            *_of(torch, "t t squeeze detach"),
            ("transpose", lambda x: x.transpose(one, other)),
            ("permute", lambda x: x.permute(*reversed(range(x.ndim)))),
            ("view flat", lambda x: x.view(-1)),
            ("view split", lambda x: x.view(*x.shape[:-1], 2, -1)),
            ("reshape", lambda x: x.reshape(-1, width)),
            ("unflatten", lambda x: x.unflatten(-1, (-1, 2))),
            ("unsqueeze", lambda x: x.unsqueeze(one)),
            ("squeeze dim", lambda x: x.squeeze(one)),
            ("expand", lambda x: x.expand(3, *x.shape)),
            ("select", lambda x: x.select(one, 0)),
            ("slice", lambda x: x[:1]),
            ("narrow", lambda x: x.narrow(-1, 0, 2)),
            ("alias", aten.alias),
            ("split", lambda x: x.split(2, one)),
            ("unbind", lambda x: x.unbind(0)),
            ("diagonal", lambda x: x.diagonal()),
            ("view as it is", lambda x: x.view(x.shape)),
        ]
    )
    return name, _of_elements(op), 1


_POINTWISE = sorted(
    (
        op
        for op in ops_with_strategies()
        if is_pointwise(op)
        and torch.Tag.nondeterministic_seeded not in op.tags
        and not any(given.is_out for given in op._schema.arguments)
    ),
    key=str,
)


def pointwise(random: Random, width: int) -> Drawn:
    """Draw any of the ops with torch's strategy for pointwise ops."""
    op = random.choice(_POINTWISE)
    kinds = [str(given.type) for given in op._schema.arguments if not given.kwarg_only]
    values = {"number": 2, "int": 0, "float": 1.5, "bool": True}

    def on_operands(mesh: DeviceMesh, *tensors: Any) -> Any:
        operands = iter(tensors)
        return op(*(next(operands) if kind == "Tensor" else values.get(kind) for kind in kinds))

    return op._schema.name, on_operands, kinds.count("Tensor")


def _reduction(random: Random, width: int) -> Drawn:
    dim = random.choice([0, 1, -1])
    keepdim = random.random() < 0.5
    name, op = random.choice(
        [
            ("sum all", torch.sum),
            ("sum", lambda x: x.sum(dim, keepdim=keepdim)),
            ("mean", lambda x: x.mean(dim, keepdim=keepdim)),
            ("max", lambda x: x.max(dim)),
            ("softmax", lambda x: x.softmax(dim)),
            ("log_softmax", lambda x: x.log_softmax(dim, dtype=torch.float32)),
            ("cumsum", lambda x: x.cumsum(dim)),
            ("norm", lambda x: torch.linalg.vector_norm(x)),
            ("layer_norm", lambda x: functional.layer_norm(x, x.shape[-1:])),
            ("topk", lambda x: x.topk(1, dim)),
            ("var", lambda x: x.var(dim)),
        ]
    )
    return f"{name} {dim} {keepdim}", _local(op), 1


def _placing(random: Random, width: int) -> Drawn:
    # Its name ends like that of an in-place op, so that made-up values are not compared.
    seed = random.random()

    def redistributed(mesh: DeviceMesh, x: DTensor) -> DTensor:
        wanted = random_placements(Random(seed), mesh, x.ndim)
        odd = (Partial, _StridedShard)
        wanted = tuple(Replicate() if isinstance(kind, odd) else kind for kind in wanted)
        return x.redistribute(mesh, wanted)

    def localized(mesh: DeviceMesh, x: DTensor) -> DTensor:
        wanted = random_placements(Random(seed), mesh, x.ndim)
        return DTensor.from_local(x.to_local(), mesh, wanted, run_check=False)

    if random.random() < 0.5:
        return "from local", localized, 1
    return "redistribute_", redistributed, 1


DRAWERS = (
    *[_any_of(_ONE, 1, _local)] * 4,
    *[_with_number] * 4,
    *[_any_of(_TWO, 2, _of_elements)] * 6,
    *[_any_of(_THREE, 3, _of_elements)] * 2,
    *[_view] * 5,
    *[_reduction] * 2,
    _in_place,
    _on_lists,
    *[_placing] * 2,
)
