"""One rank's training program of a decoder, up to the step that inserts the communication."""

from typing import Any, NamedTuple

import paddle
from paddle import static
from paddle.distributed.auto_parallel.static.completion import Completer
from paddle.distributed.auto_parallel.static.dist_context import DistributedContext
from paddle.distributed.auto_parallel.static.partitioner import Partitioner
from paddle.distributed.fleet import auto

from planners.reshard.upstream.decoder import HEADS, TENSOR_AXIS, decoder_loss


class Partitioned(NamedTuple):
    """The arguments of a Resharder: every rank's ops still, with this rank's shapes.

    `main` is one training step: forward, backward and Adam; `startup` initialises its parameters;
    `context` says how each op and tensor is sharded. The optimizer updates the pairs.
    """

    main: Any
    startup: Any
    rank: int
    context: Any
    parameters_and_gradients: Any


def partitioned(layers: int, pipeline: int, tensor: int, rank: int) -> Partitioned:
    """Build the program of a decoder; within `fresh_state`, the same one every time.

    Args:
        layers: Decoder blocks, at least one for each pipeline stage.
        pipeline: Pipeline stages; the first holds the first `tensor` ranks, and so on.
        tensor: Ranks of a stage, over which it is sharded.
        rank: Which of the `pipeline * tensor` ranks it is for.

    Raises:
        ValueError: there can be no such program.
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
        loss = decoder_loss([stages[layer * pipeline // layers] for layer in range(layers)])

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
