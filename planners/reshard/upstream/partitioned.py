"""One rank's training program of a decoder, up to the step that inserts the communication."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import paddle
from paddle import static
from paddle.base import framework, unique_name
from paddle.distributed.auto_parallel.static.completion import Completer
from paddle.distributed.auto_parallel.static.dist_context import (
    DistributedContext,
    set_default_distributed_context,
)
from paddle.distributed.auto_parallel.static.partitioner import Partitioner
from paddle.distributed.auto_parallel.static.process_group import clear_all_process_groups
from paddle.distributed.fleet import auto

from planners.reshard.upstream.decoder import HEADS, TENSOR_AXIS, decoder_loss


@contextmanager
def fresh_state() -> Iterator[None]:
    """Let the same names and numbers be given until the block is left, whatever was built before.

    They are the names of variables and of scopes, the numbers of process groups, and what is known
    of how tensors are sharded. From release 3 on, names are also counted by the default program.
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
    """The arguments of a Resharder: every rank's ops still, with this rank's shapes."""

    main: Any  # one training step: forward, backward and Adam
    startup: Any  # initialises its parameters
    rank: int
    context: Any  # how each op and tensor is sharded
    parameters_and_gradients: Any  # pairs that the optimizer updates


def partitioned(layers: int, pipeline: int, tensor: int, rank: int) -> Partitioned:
    """Build the program of a decoder for a rank; within `fresh_state`, the same one every time.

    Of the `pipeline` stages, each with one of the `layers` or more, the first holds the first
    `tensor` ranks, and so on. Raises ValueError where there can be no such program.
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
