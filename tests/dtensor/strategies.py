"""Meshes, tensors on them and ops on strategies, for what searches for a strategy."""

from inspect import signature

import torch
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, OpSpec, OpStrategy
from torch.distributed.tensor._ops import utils

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


def outcome(function, *arguments, **options):
    """Return what a call returns, or the error that it raises."""
    try:
        return function(*arguments, **options)
    except Exception as error:
        return type(error), str(error)


def as_schema(inputs, **keyword_arguments):
    strategies = tuple(OpStrategy([OpSpec(each)]) for each in inputs)
    return OpSchema(aten.add.Tensor, strategies, keyword_arguments)
