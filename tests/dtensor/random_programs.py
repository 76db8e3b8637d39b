"""Short random programs on DTensors, and the full results of their ops.

The steps of a program are drawn once. The program runs at several sizes and with several kinds of
local tensors, so that a cache sees the same ops and placements with other sizes and other kinds.
Values that fake redistributions make up are not compared.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from outcomes import described, redistributions_counted
from random_ops import DRAWERS, Op, pointwise, random_placements
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.two_tensor import TwoTensor
from watchers import Watcher, unwatched

DTYPES = (torch.float32, torch.float32, torch.float32, torch.float16, torch.int64, torch.bool)


class Tagged(torch.Tensor):
    """The plainest subclass of Tensor: torch's functions on it return the same subclass."""


class Watched(torch.Tensor):
    """A subclass that changes the results of torch's functions."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        made = super().__torch_function__(function, types, args, kwargs or {})
        with torch._C.DisableTorchFunctionSubclass():
            return made + 1 if isinstance(made, cls) and made.is_floating_point() else made


# Keys of a cache consist of specs, which say nothing of the kind of a local tensor.
KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda values: values,
    "subclass": lambda values: values.as_subclass(Tagged),
    "overriding subclass": lambda values: values.as_subclass(Watched),
    "wrapper subclass": lambda values: TwoTensor(values, values + 1),
    "parameter": torch.nn.Parameter,
    "frozen parameter": lambda values: torch.nn.Parameter(values, requires_grad=False),
    "buffer": torch.nn.Buffer,
    "with gradient": lambda values: values.requires_grad_(),
    "inference": torch.inference_mode()(torch.clone),
    "waited for": AsyncCollectiveTensor,
    "turned": lambda values: values.t().contiguous().t(),
    "with gaps": lambda values: values.repeat(1, 2)[:, ::2],
    "expanded": lambda values: values[:1].expand_as(values),
    "shifted": lambda values: torch.cat([values, values])[len(values) :],
    "negated": torch._neg_view,
    "meta": lambda values: values.to("meta"),
    "sparse": lambda values: values.to_sparse(),
    "opaque": lambda values: values.to_mkldnn(),
    "quantized": lambda values: torch.quantize_per_tensor(values, 0.5, 0, torch.qint8),
    "nested": lambda values: torch.nested.nested_tensor([values, values]),
}


@dataclass(frozen=True)
class Input:
    """An input tensor of a program; the sizes 0 and -1 stand for the two sizes of a run."""

    shape: tuple[int, ...]
    placements: tuple[Placement, ...]
    dtype: torch.dtype = torch.float32
    order: tuple[int, ...] = (0, 1)  # of the dimensions in memory
    has_gaps: bool = False
    is_given_globally: bool = False
    needs_grad: bool = False

    def made(self, mesh: DeviceMesh, sizes: tuple[int, int], seed: int, kind: str) -> DTensor:
        """Return the tensor of a run, with whole numbers as elements."""
        shape = [size if size > 0 else sizes[size] for size in self.shape]
        local_shape = list(shape)
        for size, placement in zip(mesh.shape, self.placements, strict=True):
            if isinstance(placement, Shard | _StridedShard) and placement.dim < len(shape):
                local_shape[placement.dim] = -(-local_shape[placement.dim] // size)
        generator = torch.Generator().manual_seed(seed)
        stored = [local_shape[dim] for dim in self.order]
        if self.has_gaps and stored:
            stored[-1] *= 2
        values = torch.randint(-4, 5, stored, generator=generator).to(self.dtype)
        if self.has_gaps and stored:
            values = values[..., ::2]
        local = KINDS[kind](values.permute([self.order.index(dim) for dim in range(len(shape))]))
        options: dict[str, Any] = {}
        if self.is_given_globally:
            stride = torch.empty(shape, device="meta").stride()
            options = {"shape": torch.Size(shape), "stride": stride}
        try:
            made = DTensor.from_local(local, mesh, self.placements, run_check=False, **options)
        except Exception:  # it has no strides, which `from_local` wants to know
            meta = TensorMeta(torch.Size(shape), torch.empty(shape).stride(), local.dtype)
            spec = DTensorSpec(mesh, self.placements, meta)
            made = DTensor(local, spec, requires_grad=local.requires_grad)
        if self.needs_grad and made.is_floating_point():
            made = made.detach().requires_grad_()
        return made


@dataclass(frozen=True)
class Step:
    """An op on earlier values of the program; `operands` are their indices."""

    name: str
    op: Op
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """The two sizes of a run, and the kind of each input's local tensor."""

    sizes: tuple[int, int]
    kinds: tuple[str, ...]
    takes_grad: bool


@dataclass(frozen=True)
class RandomProgram:
    """A program: inputs, and steps that each append a value to the earlier values."""

    mesh: DeviceMesh
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    runs: tuple[Run, ...]

    def outcomes(
        self, run: Run, watched: Watcher = unwatched, has_values: bool = True
    ) -> list[tuple[str, Any]]:
        """Run the program; return the name of each step with a full description of its value.

        A mode or a compiler may watch the steps; what it saw belongs to the description.
        """
        made_up: set[int] = set()
        values: list[Any] = []
        found: list[tuple[str, Any]] = []
        # A product of a meta tensor and another one holds whatever was in memory.
        has_values = has_values and "meta" not in run.kinds
        with redistributions_counted() as count:
            for number, (given, kind) in enumerate(zip(self.inputs, run.kinds, strict=True)):
                values.append(given.made(self.mesh, run.sizes, number, kind))
                found.append((kind, described(values[-1])))
            for number, step in enumerate(self.steps, start=len(values)):
                before = count[0]
                operands = [values[operand] for operand in step.operands]
                made: Any = None
                seen = None
                if not any(isinstance(operand, Exception) for operand in operands):
                    try:
                        made, seen = watched(step.op, self.mesh, *operands)
                    except Exception as error:
                        made = error
                if count[0] != before or made_up & set(step.operands):
                    made_up.add(number)
                    if step.name.endswith("_"):  # it changes values that others share
                        made_up.update(range(number))
                values.append(made[0] if isinstance(made, list | tuple) and made else made)
                shown = made is not None and described(made, has_values and number not in made_up)
                if isinstance(made, Exception) and set(run.kinds) != {"plain"}:
                    shown = "error"  # which one depends on the function that is first to fail
                found.append((step.name, [shown, seen]))
        if run.takes_grad:
            found.append(("gradients", self._gradients(values)))
        return found

    def _gradients(self, values: list[Any]) -> Any:
        leaves = [leaf for leaf in values[: len(self.inputs)] if leaf.requires_grad]
        ends = [end for end in values if isinstance(end, DTensor) and end.grad_fn is not None]
        if not (leaves and ends):
            return None
        try:
            ends[-1].float().sum().backward()
        except Exception as error:
            return described(error)
        return [described(leaf.grad, False) for leaf in leaves]


def random_program(random: Random, mesh: DeviceMesh) -> RandomProgram:
    """Draw a program; one in six has other kinds of local tensors than plain ones."""
    width = random.choice([2, 3, 4, 8, 8, 8])
    count, most_steps = random.randint(1, 3), 6
    has_kinds = random.random() < 1 / 6
    takes_grad = not has_kinds and random.random() < 0.3
    runs: list[Run] = []
    if has_kinds:
        most_steps = 2
        inputs = [Input((8, 8), random_placements(random, mesh, 2)) for _ in range(count)]
        for _ in range(5):  # plain ones in between, so that there is a recipe
            kinds = tuple(random.choice(list(KINDS)) for _ in inputs)
            runs += [Run((8, 8), kinds, False), Run((8, 8), ("plain",) * count, False)]
    else:
        needs_grad = takes_grad or random.random() < 0.1
        inputs = [_input(random, mesh, width, needs_grad) for _ in range(count)]
        even, any_size = (8, 16, 24, 32, 40), (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24)
        allowed = random.choice([even, any_size])
        for _ in range(4):
            sizes = random.choice(allowed), random.choice(allowed)
            runs.append(Run(sizes, ("plain",) * count, takes_grad))
    drawers = DRAWERS if has_kinds else (*DRAWERS, *[pointwise] * 3)
    steps: list[Step] = []
    for number in range(random.randint(1, most_steps)):
        name, op, arity = random.choice(drawers)(random, width)
        known = count + number
        operands = tuple(random.choice([known - 1, random.randrange(known)]) for _ in range(arity))
        steps.append(Step(name, op, operands))
    return RandomProgram(mesh, tuple(inputs), tuple(steps), tuple(runs))


def _input(random: Random, mesh: DeviceMesh, width: int, needs_grad: bool) -> Input:
    # 0 stands for the batch size.
    plain = [(0, width)] * 3 + [(width, width)] * 2 + [(width,), (0,), ()]
    odd = [(1, width), (0, 1), (0, width, width), (2, 0, width), (width, 0)]
    of_two_sizes = [(0, -1), (0, -1), (-1, 0), (-1, -1), (-1,), (2, 0, -1)]
    shape = random.choice([*plain, *odd, *of_two_sizes])
    order = list(range(len(shape)))
    if random.random() < 0.2:
        random.shuffle(order)
    return Input(
        shape,
        random_placements(random, mesh, len(shape)),
        random.choice(DTYPES),
        tuple(order),
        has_gaps=random.random() < 0.08,
        is_given_globally=random.random() < 0.15,
        needs_grad=needs_grad,
    )
