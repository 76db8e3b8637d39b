"""A stack of decoder blocks as a program, in a sequence-parallel Megatron layout.

Between the blocks' halves, the residual is sharded by sequence; before each half it is gathered,
and after it sliced, each time by an op that says so. Inside, the weights are sharded by column and
then by row.
"""

from collections.abc import Sequence
from typing import Any

import paddle
from paddle import distributed, nn, static
from paddle.distributed.fleet import auto
from paddle.framework import LayerHelper

# The number of ops does not depend on them, and no tensor is ever allocated.
HIDDEN = 64
SEQUENCE = 32
BATCH = 4
HEADS = 4

TENSOR_AXIS = "tensor"

_SEQUENCE_DIMENSION = 1
_BY_COLUMN = [None, TENSOR_AXIS]
_BY_ROW = [TENSOR_AXIS, None]


def decoder_loss(meshes: Sequence[Any]) -> Any:
    """Append a decoder to the default program, and return its loss, a scalar.

    Input and label have the shape [batch, sequence, hidden], and are not sharded. `meshes` has for
    each layer the mesh of its pipeline stage, with the one axis TENSOR_AXIS.
    """
    shape = [BATCH, SEQUENCE, HIDDEN]
    tokens = static.data("input", shape, "float32")
    label = static.data("label", shape, "float32")
    auto.shard_tensor(tokens, meshes[0], [None, None, None])
    auto.shard_tensor(label, meshes[-1], [None, None, None])

    residual = _sliced(tokens, meshes[0])
    stage = meshes[0]
    for mesh in meshes:
        if mesh is not stage:
            residual = _sliced(residual, mesh)
            stage = mesh
        for half in (_attention, _mlp):
            whole = _gathered(nn.LayerNorm(HIDDEN)(residual), mesh)
            residual = paddle.add(residual, _sliced(half(whole, mesh), mesh))
    error = nn.functional.square_error_cost(_gathered(residual, stage), label)
    return paddle.mean(error)


def _gathered(tensor: Any, mesh: Any) -> Any:
    return distributed.reshard(tensor, mesh, [distributed.Replicate()])


def _sliced(tensor: Any, mesh: Any) -> Any:
    return distributed.reshard(tensor, mesh, [distributed.Shard(_SEQUENCE_DIMENSION)])


def _attention(tensor: Any, mesh: Any) -> Any:
    query, key, value = (
        _heads(_linear(tensor, HIDDEN, mesh, _BY_COLUMN)) for _ in ("query", "key", "value")
    )
    query = paddle.scale(query, (HIDDEN // HEADS) ** -0.5)
    scores = _op("matmul_v2", X=query, Y=key, trans_x=False, trans_y=True)
    weights = _op("softmax", X=scores, axis=-1)
    context = _op("matmul_v2", X=weights, Y=value, trans_x=False, trans_y=False)
    joined = paddle.reshape(paddle.transpose(context, [0, 2, 1, 3]), [0, 0, HIDDEN])
    return _linear(joined, HIDDEN, mesh, _BY_ROW)


def _heads(tensor: Any) -> Any:
    return paddle.transpose(paddle.reshape(tensor, [0, 0, HEADS, HIDDEN // HEADS]), [0, 2, 1, 3])


def _mlp(tensor: Any, mesh: Any) -> Any:
    wide = _op("gelu", X=_linear(tensor, 4 * HIDDEN, mesh, _BY_COLUMN), approximate=True)
    return _linear(wide, HIDDEN, mesh, _BY_ROW)


def _linear(tensor: Any, features: int, mesh: Any, sharded: list[str | None]) -> Any:
    layer = nn.Linear(tensor.shape[-1], features)
    auto.shard_tensor(layer.weight, mesh, sharded)
    return layer(tensor)


def _op(kind: str, **named: Any) -> Any:
    """Append an op with one output; names with a capital are inputs, and others attributes.

    The functions for these in release 3 take no variables of the old program representation.
    """
    inputs = {name: value for name, value in named.items() if name.istitle()}
    attributes = {name: value for name, value in named.items() if name not in inputs}
    helper = LayerHelper(kind)
    output = helper.create_variable_for_type_inference(inputs["X"].dtype)
    helper.append_op(type=kind, inputs=inputs, outputs={"Out": output}, attrs=attributes)
    return output
