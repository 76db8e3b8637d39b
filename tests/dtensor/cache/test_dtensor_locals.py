"""A recipe made for one kind of local tensor gives right results for every other kind.

Cache keys consist of specs, which do not contain a local tensor's class, layout, device or flags.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from outcomes import redistributions_counted, results_under
from random_ops import DRAWERS, Op
from small_world import counted, placed, running
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.testing._internal.two_tensor import TwoTensor

from planners.dtensor.dispatch.base import Dispatch

pytestmark = pytest.mark.filterwarnings("ignore")


class Tagged(torch.Tensor):
    """The plainest subclass of Tensor: torch's functions on it return the same subclass."""


class Watched(torch.Tensor):
    """A subclass that changes the results of torch's functions."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        made = super().__torch_function__(function, types, args, kwargs or {})
        with torch._C.DisableTorchFunctionSubclass():
            return made + 1 if isinstance(made, cls) and made.is_floating_point() else made


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

# On a functional tensor, or with a gradient on this one, torch's own dispatch ends the process.
SPARSE_ROWS = "sparse rows"


def given(mesh: DeviceMesh, kind: str, placement: Placement) -> DTensor:
    """Return a DTensor with a local tensor of this kind, built directly if `from_local` fails."""
    local = counted(2, 4)
    local = local.to_sparse_csr() if kind == SPARSE_ROWS else KINDS[kind](local)
    try:
        return placed(mesh, local, placement)
    except Exception:  # it has no strides, which `from_local` wants to know
        rows = 2 * mesh.size() if placement.is_shard() else 2
        meta = TensorMeta(torch.Size((rows, 4)), (4, 1), local.dtype)
        spec = DTensorSpec(mesh, (placement,), meta)
        return DTensor(local, spec, requires_grad=local.requires_grad)


def seen(value: Any, has_values: bool) -> Any:
    """Return all observable properties of a result and of its local tensor."""
    if isinstance(value, list | tuple):
        return [seen(part, has_values) for part in value]
    if not isinstance(value, torch.Tensor):
        return value
    flags = [type(value), value.dtype, value.requires_grad, value.is_leaf, value.is_inference()]
    flags += [value.layout, value.device, value.is_neg(), value.is_quantized, value.is_nested]
    if isinstance(value, DTensor):
        local = value._local_tensor
        return [flags, value.placements, *value._spec.tensor_meta, seen(local, has_values)]
    if type(value) is TwoTensor:
        return [flags, seen(value.a, has_values), seen(value.b, has_values)]
    if value.layout is torch.strided and not value.is_nested:
        flags += [tuple(value.shape), value.stride(), value.storage_offset(), value._is_view()]
    if has_values and not value.is_meta:
        flags.append(_text(value))
    return flags


def _text(value: torch.Tensor) -> str:
    with torch._C.DisableTorchFunction(), torch.no_grad():
        plain = (
            torch._from_functional_tensor(value) if torch._is_functional_tensor(value) else value
        )
        return str(plain.to_dense() if plain.is_mkldnn else plain)


def outcomes(
    dispatch: Dispatch, mesh: DeviceMesh, op: Op, operands: list[list[tuple[str, Placement]]]
) -> list[Any]:
    """Return an op's results on operands of several kinds, one after the other."""
    found: list[Any] = []
    with running(dispatch):
        for kinds in operands:
            with redistributions_counted() as count:
                try:
                    made = op(mesh, *[given(mesh, *operand) for operand in kinds])
                    # A product of a meta tensor and another one holds whatever was in memory.
                    found.append(seen(made, not count[0] and "meta" not in dict(kinds)))
                except Exception as error:
                    found.append((type(error), str(error).partition("\n")[0]))
    return found


def differences(make: Callable[[], Dispatch], mesh: DeviceMesh, seeds: range) -> list[str]:
    found = []
    for seed in seeds:
        random = Random(seed)
        name, op, arity = random.choice(DRAWERS)(random, 4)
        if name.startswith("redistribute"):
            continue
        placements = [random.choice([Shard(0), Replicate()]) for _ in range(arity)]
        operands = []
        for _ in range(5):  # plain ones in between, so that there is a plan
            kinds = [random.choice(list(KINDS)) for _ in range(arity)]
            operands += [[(kind, at) for kind, at in zip(kinds, placements, strict=True)]]
            operands += [[("plain", at) for at in placements]]
        expected = outcomes(Dispatch(), mesh, op, operands)
        made = outcomes(make(), mesh, op, operands)
        for kinds, one, other in zip(operands, expected, made, strict=True):
            if one != other:
                found.append(f"seed {seed}, {name} of {kinds}:\n{one}\n{other}")
                break
    return found


def test_local_tensors_of_every_kind_are_handled_as_in_torch(dispatch, mesh):
    assert not differences(type(dispatch), mesh, range(100))


@pytest.mark.parametrize("op", [torch.relu, torch.neg, torch.detach])
def test_sparse_rows_are_handled_as_in_torch(op, dispatch, mesh):
    operands = [[(kind, Shard(0))] for kind in 2 * ("plain", SPARSE_ROWS)]
    expected, made = (
        outcomes(under, mesh, lambda _, x: op(x), operands) for under in (Dispatch(), dispatch)
    )
    assert made == expected


def test_a_subclass_ends_where_it_ends_in_torch(dispatch, mesh):
    def kinds(mesh: DeviceMesh) -> list[type]:
        x = placed(mesh, counted(2, 4).as_subclass(Tagged), Shard(0))
        return [type(tensor._local_tensor) for tensor in (x, x.relu(), x @ x.t(), x + 1)]

    assert results_under(dispatch, mesh, kinds) == results_under(Dispatch(), mesh, kinds)
