"""Meshes, tensors on them and ops on strategies, for tests of the searches."""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from unittest import mock

import torch
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy
from torch.distributed.tensor._ops import utils

from planners.dtensor.search import staying
from planners.dtensor.search.dispatches import exact_misses

aten = torch.ops.aten

SHAPES = ((4,), (2, 4), (2, 2, 2))
REDUCE_OPS = ("sum", "avg", "max")
UPSTREAM = utils.expand_to_full_mesh_op_strategy
(STRATEGY_FILTER,) = {  # its names, by release of torch
    "is_valid_strategy_cb",
    "full_mesh_strategy_filter",
}.intersection(signature(UPSTREAM).parameters)


def tensor(mesh, shape, placements, dtype=torch.float32):
    empty = torch.empty(shape, dtype=dtype, device="meta")
    meta = TensorMeta(empty.shape, empty.stride(), empty.dtype)
    return DTensorSpec(mesh, tuple(placements), tensor_meta=meta)


def as_schema(inputs, **keyword_arguments):
    strategies = tuple(OpStrategy([OpSpec(spec)]) for spec in inputs)
    return OpSchema(aten.add.Tensor, strategies, keyword_arguments)


@contextmanager
def searched() -> Iterator[None]:
    """Search the cheapest strategy of every op, also of ops that need no redistribution."""
    decides_none = mock.patch.object(staying, "decide_without_redistribution", return_value=None)
    with decides_none, exact_misses():
        yield
