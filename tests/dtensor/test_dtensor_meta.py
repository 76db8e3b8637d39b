"""Wherever results are predicted on the meta device, fake tensors predict the same."""

from random import Random
from typing import Any

import pytest
import torch
from small_world import mesh_of
from torch.distributed.tensor import Replicate
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema

from planners.dtensor.dispatch.torch_path import PROPAGATOR, ops_with_strategies
from planners.dtensor.search.tensor_meta import (
    PRODUCTS,
    is_asked_directly,
    is_pointwise,
    meta_of,
    plain_meta,
)

aten = torch.ops.aten

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool)
SHAPES = {
    "mm": [(2, 3), (3, 4)],
    "addmm": [(4,), (2, 3), (3, 4)],
    "bmm": [(5, 2, 3), (5, 3, 4)],
    "baddbmm": [(5, 1, 4), (5, 2, 3), (5, 3, 4)],
}


def spec_of(random: Random, shape: tuple[int, ...], dtype: torch.dtype) -> DTensorSpec:
    """Draw a tensor's spec with any order of dimensions in memory, sometimes with gaps."""
    order = list(range(len(shape)))
    if random.random() < 0.5:
        random.shuffle(order)
    stride, step = [0] * len(shape), random.choice((1, 1, 1, 2))
    for dim in reversed(order):
        stride[dim], step = step, step * max(1, shape[dim])
    meta = TensorMeta(torch.Size(shape), tuple(stride), dtype)
    return DTensorSpec(mesh_of(4), (Replicate(),), meta)


def schemas(op: Any, random: Random, amount: int) -> list[OpSchema]:
    """Return calls of an op on inputs of one shape, or of fitting shapes if the op is a product."""
    name = op._schema.name.partition("::")[2]
    taken = [str(given.type) for given in op._schema.arguments if not given.kwarg_only]
    made = []
    for _ in range(amount):
        shape = tuple(random.randint(2, 4) for _ in range(random.randint(0, 3)))
        shapes = iter(SHAPES.get(name, [shape] * len(taken)))
        dtype = random.choice(DTYPES)
        values = {"number": 2, "int": 0, "float": 1.5, "bool": True}
        args = [
            spec_of(random, next(shapes), dtype if random.random() < 0.8 else random.choice(DTYPES))
            if kind == "Tensor"
            else values.get(kind)
            for kind in taken
        ]
        made.append(OpSchema(op, tuple(args), {}))
    return made


@pytest.mark.parametrize("seed", range(2))
def test_products_and_pointwise_ops_have_the_meta_that_fake_tensors_predict(seed):
    random, asked = Random(seed), 0
    ops = sorted(
        (op for op in ops_with_strategies() if op in PRODUCTS or is_pointwise(op)), key=str
    )
    for op in random.sample(ops, 60) + sorted(PRODUCTS, key=str):
        if not is_asked_directly(op) or "dtype" in {given.name for given in op._schema.arguments}:
            continue
        for schema in schemas(op, random, 6):
            if (answer := meta_of(schema)) is not None:
                asked += 1
                assert answer == PROPAGATOR._propagate_tensor_meta_non_cached(schema), schema
    assert asked > 100


def test_products_of_tensors_of_other_dimensions_are_left_to_torch():
    """Matrices for a batch product, and batches for a matrix product, have torch's errors."""
    mesh = mesh_of(4)
    for op, ndim in ((aten.mm.default, 3), (aten.bmm.default, 2), (aten.baddbmm.default, 2)):
        meta = TensorMeta(torch.Size([4] * ndim), (16, 4, 1)[-ndim:], torch.float32)
        spec = DTensorSpec(mesh, (Replicate(),), meta)
        inputs = (spec,) * (3 if op is aten.baddbmm.default else 2)
        assert plain_meta(OpSchema(op, inputs, {})) is None


@pytest.mark.parametrize("stride", [(24, 24, 1), (24, 48, 1), (24, 0, 1), (1, 5, 2)])
def test_a_view_has_the_stride_that_fake_tensors_predict(stride):
    """The stride of a dimension of size 1 is arbitrary, and a fake tensor keeps it."""
    mesh = mesh_of(4)
    for shape in ((2, 1, 24), (1, 2, 1)):
        spec = DTensorSpec(
            mesh, (Replicate(),), TensorMeta(torch.Size(shape), stride, torch.float32)
        )
        schema = OpSchema(aten.view.default, (spec, list(shape)), {})
        meta = plain_meta(schema)
        assert meta is None or meta == PROPAGATOR._propagate_tensor_meta_non_cached(schema)
