"""Short random programs on DTensors, and the full results of their ops.

The steps of a program are drawn once. The program runs at any sizes, so that a cache sees the same
ops and placements with other sizes. Values that fake redistributions make up are not compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from outcomes import described, redistributions_counted
from random_ops import DRAWERS, Op, random_placements
from small_world import running
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Shard
from torch.distributed.tensor.placement_types import _StridedShard
from watchers import Watcher, unwatched

from planners.dtensor.dispatch.base import Dispatch

Sizes = tuple[int, int]
Values = list[Any]

DTYPES = (torch.float32, torch.float32, torch.float32, torch.float16, torch.int64, torch.bool)


@dataclass(frozen=True)
class Input:
    """An input tensor of a program; the sizes 0 and -1 stand for the two sizes of a run."""

    shape: tuple[int, ...]
    placements: tuple[Placement, ...]
    dtype: torch.dtype
    order: tuple[int, ...]
    has_gaps: bool
    is_given_globally: bool
    needs_grad: bool

    def made(self, mesh: DeviceMesh, sizes: Sizes, number: int) -> DTensor:
        shape = [size if size > 0 else sizes[size] for size in self.shape]
        local_shape = list(shape)
        for size, placement in zip(mesh.shape, self.placements, strict=True):
            if isinstance(placement, Shard | _StridedShard) and placement.dim < len(shape):
                local_shape[placement.dim] = -(-local_shape[placement.dim] // size)
        generator = torch.Generator().manual_seed(number)
        stored = [local_shape[dim] for dim in self.order]
        if self.has_gaps and stored:
            stored[-1] *= 2
        values = torch.randint(-4, 5, stored, generator=generator).to(self.dtype)
        if self.has_gaps and stored:
            values = values[..., ::2]
        local = values.permute([self.order.index(dim) for dim in range(len(self.order))])
        options: dict[str, Any] = {}
        if self.is_given_globally:
            options = {"shape": torch.Size(shape), "stride": _contiguous(shape)}
        made = DTensor.from_local(local, mesh, self.placements, run_check=False, **options)
        if self.needs_grad and made.is_floating_point():
            made = made.detach().requires_grad_()
        return made


def _contiguous(shape: list[int]) -> tuple[int, ...]:
    strides, expected = [], 1
    for size in reversed(shape):
        strides.append(expected)
        expected *= max(size, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True)
class Step:
    """An op on earlier values of the program; `operands` are their indices."""

    name: str
    op: Op
    operands: tuple[int, ...]


@dataclass(frozen=True)
class RandomProgram:
    """A program: inputs, and steps that each append a value to the earlier values."""

    mesh: DeviceMesh
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]

    def outcomes(
        self, sizes: Sizes, takes_grad: bool, watched: Watcher = unwatched, has_values: bool = True
    ) -> list[Any]:
        """Run at these sizes and return a full description of each value.

        A mode or a compiler may watch the steps; what it saw belongs to the description.
        """
        made_up: set[int] = set()
        values: Values = []
        found: list[Any] = []
        with redistributions_counted() as count:
            for number, given in enumerate(self.inputs):
                values.append(given.made(self.mesh, sizes, number))
                found.append(described(values[-1]))
            for number, step in enumerate(self.steps, start=len(values)):
                before = count[0]
                operands = [values[operand] for operand in step.operands]
                if any(isinstance(operand, Exception) for operand in operands):
                    values.append(RuntimeError("no operand"))
                    found.append((step.name, "no operand"))
                    continue
                seen = None
                try:
                    made, seen = watched(step.op, self.mesh, *operands)
                except Exception as error:
                    made = error
                if count[0] != before or made_up & set(step.operands):
                    made_up.add(number)
                    if step.name.endswith("_"):  # it changes values that others share
                        made_up.update(range(number))
                values.append(_first(made))
                shown = described(made, has_values and number not in made_up)
                found.append((step.name, shown, seen))
            if takes_grad:
                found.append(self._gradients(values, count))
        return found

    def _gradients(self, values: Values, count: list[int]) -> Any:
        leaves = [leaf for leaf in values[: len(self.inputs)] if leaf.requires_grad]
        ends = [end for end in values if isinstance(end, DTensor) and end.grad_fn is not None]
        if not (leaves and ends):
            return None
        try:
            ends[-1].float().sum().backward()
        except Exception as error:
            return described(error, False)
        return [described(leaf.grad, False) for leaf in leaves]


def _first(made: Any) -> Any:
    return made[0] if isinstance(made, list | tuple) and made else made


def outcomes_under(
    dispatch: Dispatch,
    program: RandomProgram,
    runs: Sequence[Sizes],
    takes_grad: bool = False,
    **watching: Any,
) -> list[Any]:
    """Run a program at several sizes under one installed dispatch, starting with cold caches."""
    with running(dispatch):
        return [program.outcomes(sizes, takes_grad, **watching) for sizes in runs]


def random_runs(random: Random) -> list[Sizes]:
    """Draw two sizes for each of four runs; in half of the cases all shards are even."""
    even, any_size = (8, 16, 24, 32, 40), (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24)
    allowed = random.choice([even, any_size])
    return [(random.choice(allowed), random.choice(allowed)) for _ in range(4)]


def random_program(random: Random, mesh: DeviceMesh, most_steps: int = 6) -> RandomProgram:
    """Draw a program."""
    width = random.choice([2, 3, 4, 8, 8, 8])
    takes_grad = random.random() < 0.2
    inputs = tuple(_input(random, mesh, width, takes_grad) for _ in range(random.randint(1, 3)))
    steps: list[Step] = []
    for number in range(random.randint(1, most_steps)):
        name, op, arity = random.choice(DRAWERS)(random, width)
        known = len(inputs) + number
        operands = tuple(random.choice([known - 1, random.randrange(known)]) for _ in range(arity))
        steps.append(Step(name, op, operands))
    return RandomProgram(mesh, inputs, tuple(steps))


def _input(random: Random, mesh: DeviceMesh, width: int, takes_grad: bool) -> Input:
    # 0 stands for the batch size.
    plain = [(0, width)] * 3 + [(width, width)] * 2 + [(width,), (0,), ()]
    odd = [(1, width), (0, 1), (0, width, width), (2, 0, width), (width, 0)]
    of_two_sizes = [(0, -1), (0, -1), (-1, 0), (-1, -1), (-1,), (2, 0, -1)]
    shape = random.choice([*plain, *odd, *of_two_sizes])
    order = list(range(len(shape)))
    if random.random() < 0.2:
        random.shuffle(order)
    dtype = random.choice(DTYPES)
    return Input(
        shape,
        random_placements(random, mesh, len(shape)),
        dtype,
        tuple(order),
        has_gaps=random.random() < 0.08,
        is_given_globally=random.random() < 0.15,
        needs_grad=takes_grad,
    )
