"""Build one rank's training program of a decoder with Paddle, without its communication ops.

The decoder blocks have a sequence-parallel Megatron layout. The residual is sharded by sequence.
Explicit ops gather it before attention and before the MLP, and slice their outputs. Inside, the
first weights are sharded by column and the last one by row.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import paddle
from paddle import distributed, nn, static
from paddle.base import framework, unique_name
from paddle.distributed.auto_parallel.static.completion import Completer
from paddle.distributed.auto_parallel.static.dist_context import (
    DistributedContext,
    set_default_distributed_context,
)
from paddle.distributed.auto_parallel.static.partitioner import Partitioner
from paddle.distributed.auto_parallel.static.process_group import clear_all_process_groups
from paddle.distributed.fleet import auto
from paddle.framework import LayerHelper

# The number of ops does not depend on these sizes, and Paddle allocates no tensor.
HIDDEN = 64
SEQUENCE = 32
BATCH = 4
HEADS = 4

TENSOR_AXIS = "tensor"

_SEQUENCE_DIMENSION = 1
_BY_COLUMN = [None, TENSOR_AXIS]
_BY_ROW = [TENSOR_AXIS, None]


@contextmanager
def fresh_state() -> Iterator[None]:
    """Restart the numbering of variables, scopes and process groups in the `with` block.

    Also clear Paddle's global record of sharded tensors, and use new default programs, because
    Paddle 3 counts names per program too.
    """
    paddle.enable_static()
    set_default_distributed_context(None)
    clear_all_process_groups()
    with (
        unique_name.guard(),
        patch.object(framework, "_name_scope", framework.NameScope()),
        static.program_guard(static.Program(), static.Program()),
    ):
        yield


class Partitioned(NamedTuple):
    """The arguments of a Resharder: a program with this rank's shapes and all stages' ops."""

    main: Any  # one training step: forward, backward and Adam
    startup: Any  # initialises its parameters
    rank: int
    context: Any  # how each op and tensor is sharded
    parameters_and_gradients: Any  # pairs that the optimizer updates


def partitioned(layers: int, pipeline: int, tensor: int, rank: int) -> Partitioned:
    """Build the program of a decoder for a rank; use `fresh_state` to get the same names each time.

    Each of the `pipeline` stages has at least one of the `layers`, and `tensor` consecutive
    ranks. Raises ValueError if the arguments do not fit together.
    """
    if not 1 <= pipeline <= layers:
        raise ValueError(f"pipeline is {pipeline}, which is not from 1 to {layers}, the layers")
    if tensor < 1 or HEADS % tensor:
        raise ValueError(f"tensor is {tensor}, which does not divide the {HEADS} attention heads")
    if not 0 <= rank < pipeline * tensor:
        raise ValueError(f"rank is {rank}; there are {pipeline * tensor} ranks, counted from 0")

    context = DistributedContext()
    stages = [
        auto.ProcessMesh(list(range(first, first + tensor)), dim_names=[TENSOR_AXIS])
        for first in range(0, pipeline * tensor, tensor)
    ]
    serial, serial_startup = static.Program(), static.Program()
    with static.program_guard(serial, serial_startup):
        loss = _decoder_loss([stages[layer * pipeline // layers] for layer in range(layers)])

    completed = Completer(context).complete_forward_annotation(serial)
    context.block_state.parse_forward_blocks(completed)
    with static.program_guard(completed, serial_startup):
        gradients = paddle.base.backward.append_backward(
            loss, distop_context=context.dist_op_context
        )
    Completer(context).complete_backward_annotation(completed)
    context.block_state.parse_backward_blocks(completed)

    main, startup, parameters_and_gradients = Partitioner(context, rank).partition(
        completed, serial_startup, gradients
    )
    with static.program_guard(main, startup):
        paddle.optimizer.Adam().apply_gradients(parameters_and_gradients)
    Completer(context).complete_update_annotation(main)
    return Partitioned(main, startup, rank, context, parameters_and_gradients)


def _decoder_loss(meshes: Sequence[Any]) -> Any:
    """Append a decoder to the default program, and return its scalar loss.

    Input and label have the shape [batch, sequence, hidden] and are not sharded. `meshes` has one
    mesh per layer, the mesh of its pipeline stage, with the single axis TENSOR_AXIS.
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
    """Append an op and return its output; capitalised keywords are inputs, others attributes.

    Paddle 3's own functions for these ops reject variables of the old program representation.
    """
    inputs = {name: value for name, value in named.items() if name.istitle()}
    attributes = {name: value for name, value in named.items() if name not in inputs}
    helper = LayerHelper(kind)
    output = helper.create_variable_for_type_inference(inputs["X"].dtype)
    helper.append_op(type=kind, inputs=inputs, outputs={"Out": output}, attrs=attributes)
    return output
