"""Run one release of Paddle's static-graph Resharder, in a child process with its own packages.

`harness.contract.ask_upstream` sends the requests. The program is one rank's training program of a
decoder, built by Paddle without its communication ops. The decoder blocks have a sequence-parallel
Megatron layout: the residual is sharded by sequence; explicit ops gather it before attention and
before the MLP, and slice their outputs; inside, the first weights are sharded by column and the
last one by row.
"""

import hashlib
import inspect
import json
import os
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

# Paddle 3 uses another program representation by default, which this Resharder cannot edit.
os.environ.update(FLAGS_enable_pir_api="0")

# Paddle has its own zlib with the same symbols. If Python's zlib is first used after Paddle is
# loaded, the two mix and the process crashes, so use Python's zlib before.
zlib.decompress(zlib.compress(b""))

# Paddle's environment lacks this project, so import its instruments from the checkout.
sys.path.append(str(Path(__file__).resolve().parents[3]))

import paddle  # noqa: E402 - after the lines above
from paddle import distributed, nn, static  # noqa: E402
from paddle.base import framework, unique_name  # noqa: E402
from paddle.base.framework import Block  # noqa: E402
from paddle.distributed.auto_parallel.static.completion import Completer  # noqa: E402
from paddle.distributed.auto_parallel.static.dist_context import (  # noqa: E402
    DistributedContext,
    set_default_distributed_context,
)
from paddle.distributed.auto_parallel.static.partitioner import Partitioner  # noqa: E402
from paddle.distributed.auto_parallel.static.process_group import (  # noqa: E402
    clear_all_process_groups,
)
from paddle.distributed.auto_parallel.static.reshard import Resharder  # noqa: E402
from paddle.distributed.fleet import auto  # noqa: E402
from paddle.framework import LayerHelper  # noqa: E402

from planners.instruments import counted, timed  # noqa: E402

# --- Requests ------------------------------------------------------------------------------------


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Build one rank's program, and reshard it.

    The request has `layers`, `pipeline`, `tensor` and `rank`, as for `partitioned`; `mode`, a key
    of RESHARDERS; and `count`, whether to count (without it, no method is patched).
    Returns `wall_s`, `cpu_s` (process CPU time) and `counters` of `Resharder.reshard` alone; the
    numbers of ops and variables of the main block, before and after; and the `fingerprint`. The
    counter `batches` is the number of syncs in the mode that batches all edits.
    """
    resharded = _resharded(request, request["mode"])
    if counters := resharded["counters"]:
        counters["batches"] = _resharded(request, BATCHED)["counters"]["syncs"]
        counters["edits"] = counters["inserts"] + counters["removals"]
    return resharded


HANDLERS = {"reshard": answer}


def _resharded(request: dict[str, Any], mode: str) -> dict[str, Any]:
    with ExitStack() as stack:
        stack.enter_context(fresh_state())
        main, startup, *context = partitioned(
            request["layers"], request["pipeline"], request["tensor"], request["rank"]
        )
        block = main.global_block()
        before = {"ops_before": len(block.ops), "variables_before": len(block.vars)}
        resharder = RESHARDERS[mode](main, startup, *context)
        counters = stack.enter_context(counting()) if request["count"] else {}
        _, measured = timed(resharder.reshard)
    for program in (main, startup):
        check_mirror(program)
    return {
        **measured,
        **before,
        "counters": counters,
        "fingerprint": fingerprint(main, startup),
        "ops": len(block.ops),
        "variables": len(block.vars),
    }


def counting() -> AbstractContextManager[Counter[str]]:
    """Count inserted ops, removed variables, reshardings and syncs in the `with` block.

    `ops_visited` and `values_visited` sum the ops and variables of the block over all syncs.
    """

    def sync(counters: Counter[str], block: Any) -> None:
        counters.update(syncs=1, ops_visited=block.desc.op_size(), values_visited=len(block.vars))

    return counted(
        (Block, "_insert_op_without_sync", "inserts"),  # which `_insert_op` calls as well
        (Block, "_remove_var", "removals"),
        (Resharder, "parse_op_desc", "parses"),  # also if no op is for this rank
        (Block, "_sync_with_cpp", sync),
        others=("syncs", "ops_visited", "values_visited"),
    )


def check_mirror(program: Any) -> None:
    """Raise RuntimeError if the Python copy of a block differs from the C++ block."""
    for block in program.blocks:
        ops = [block.desc.op(index) for index in range(block.desc.op_size())]
        if [op.desc for op in block.ops] != ops:
            raise RuntimeError("the ops of the Python block are not those of the C++ block")
        if set(block.vars) != {variable.name() for variable in block.desc.all_vars()}:
            raise RuntimeError("the variables of the Python block are not those of the C++ block")


def fingerprint(main: Any, startup: Any) -> str:
    """Return a hash of the main and the startup program: ops, attributes, variable names."""
    digest = hashlib.sha256()
    for block in (*main.blocks, *startup.blocks):
        lines = [[block.idx, block.parent_idx, sorted(block.vars)]]
        for op in block.ops:
            inputs = {slot: op.input(slot) for slot in op.input_names}
            outputs = {slot: op.output(slot) for slot in op.output_names}
            # Python stack frames differ with the code that inserted the op.
            names = [name for name in op.attr_names if name != "op_callstack"]
            lines.append([op.type, inputs, outputs, {name: op.attr(name) for name in names}])
        for line in lines:
            digest.update(f"{json.dumps(line, sort_keys=True)}\n".encode())
    return digest.hexdigest()


# --- Modes: how often Paddle synchronises a block's Python copy with the C++ block ----------------


class VariablesInBatch(Resharder):
    """Emulate PaddlePaddle/Paddle#59912: one sync after removing variables from a block."""

    def reshard(self) -> None:
        """Reshard as upstream does, but synchronise once after the last variable of a batch."""
        remove_var, remove_op = Block._remove_var, Block._remove_op
        unsynced: list[Any] = []  # the block that variables are being removed from

        def end_batch() -> None:
            while unsynced:
                unsynced.pop()._sync_with_cpp()

        def remove_var_without_sync(block: Any, name: str) -> None:
            if block not in unsynced:
                end_batch()
                unsynced.append(block)
            remove_var(block, name, sync=False)

        def remove_op_after_batch(block: Any, index: int, sync: bool = True) -> None:
            end_batch()
            remove_op(block, index, sync=sync)

        with (
            patch.object(Block, "_remove_var", remove_var_without_sync),
            patch.object(Block, "_remove_op", remove_op_after_batch),
        ):
            super().reshard()
            end_batch()


class AllInBatch(VariablesInBatch):
    """Emulate #59912 and PaddlePaddle/Paddle#60022: one sync for all ops inserted in a block."""

    def _reshard_input(self, block: Any) -> None:
        with patch.object(Block, "_insert_op", Block._insert_op_without_sync):
            super()._reshard_input(block)
        block._sync_with_cpp()


class InsertWithoutSync(Resharder):
    """Use #60022 as released, by an argument that the release itself never passes."""

    def parse_op_desc(self, *arguments: Any) -> None:
        """Insert ops without a sync; the caller synchronises after all inputs."""
        super().parse_op_desc(*arguments, sync=False)


# A release with both changes has them in its code, but its only caller switches the second one off.
RESHARDERS: dict[str, type[Resharder]] = {"as-shipped": Resharder}
if "sync" in inspect.signature(Resharder.parse_op_desc).parameters:
    BATCHED = "sync-once"
    RESHARDERS[BATCHED] = InsertWithoutSync
else:
    BATCHED = "part1+2"
    RESHARDERS |= {"part1": VariablesInBatch, BATCHED: AllInBatch}


# --- The program ---------------------------------------------------------------------------------

# The number of ops does not depend on these sizes, and Paddle allocates no tensor.
HIDDEN, SEQUENCE, BATCH, HEADS = 64, 32, 4, 4

_TENSOR = "tensor"
_SEQUENCE_DIMENSION = 1
_BY_COLUMN, _BY_ROW = [None, _TENSOR], [_TENSOR, None]


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


def partitioned(layers: int, pipeline: int, tensor: int, rank: int) -> tuple[Any, ...]:
    """Build the program of a decoder for a rank; use `fresh_state` to get the same names each time.

    Each of the `pipeline` stages has at least one of the `layers`, and `tensor` consecutive ranks.
    Returns a Resharder's arguments: one training step, the program that initialises its parameters,
    the rank, the context with all shardings, and pairs of parameters and gradients. Shapes are this
    rank's, ops are those of all stages. Raises ValueError if the heads cannot be divided.
    """
    if HEADS % tensor:
        raise ValueError(f"tensor is {tensor}, which does not divide the {HEADS} attention heads")
    context = DistributedContext()
    stages = [
        auto.ProcessMesh(list(range(first, first + tensor)), dim_names=[_TENSOR])
        for first in range(0, pipeline * tensor, tensor)
    ]
    # 1. The serial program, with the shardings that its author chose.
    serial, serial_startup = static.Program(), static.Program()
    with static.program_guard(serial, serial_startup):
        loss = _decoder_loss([stages[layer * pipeline // layers] for layer in range(layers)])
    # 2. All other shardings, and the backward pass.
    completed = Completer(context).complete_forward_annotation(serial)
    context.block_state.parse_forward_blocks(completed)
    with static.program_guard(completed, serial_startup):
        gradients = paddle.base.backward.append_backward(
            loss, distop_context=context.dist_op_context
        )
    Completer(context).complete_backward_annotation(completed)
    context.block_state.parse_backward_blocks(completed)
    # 3. This rank's part, and the optimizer.
    main, startup, parameters_and_gradients = Partitioner(context, rank).partition(
        completed, serial_startup, gradients
    )
    with static.program_guard(main, startup):
        paddle.optimizer.Adam().apply_gradients(parameters_and_gradients)
    Completer(context).complete_update_annotation(main)
    return main, startup, rank, context, parameters_and_gradients


def _decoder_loss(meshes: Sequence[Any]) -> Any:
    """Append a decoder to the default program, and return its scalar loss.

    Input and label have the shape [batch, sequence, hidden] and are not sharded. `meshes` has one
    mesh per layer, the mesh of its pipeline stage, with the single axis _TENSOR.
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
