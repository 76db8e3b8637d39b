"""Build a program, run Paddle's Resharder on it with a timer or counters, and hash the result."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from paddle.base.framework import Block
from paddle.distributed.auto_parallel.static.reshard import Resharder

from planners.instruments import counted, timed
from planners.reshard.upstream.modes import BATCHED, RESHARDERS
from planners.reshard.upstream.partitioned import fresh_state, partitioned


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


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Build one rank's program, and reshard it.

    The request has `layers`, `pipeline`, `tensor` and `rank`, as for `partitioned`; `mode`, a key
    of `modes.RESHARDERS`; and `count`, whether to count (without it, no method is patched).
    Returns `wall_s`, `cpu_s` (process CPU time) and `counters` of `Resharder.reshard` alone; the
    numbers of ops and variables of the main block, before and after; and the `fingerprint`.
    The counter `batches` is the number of syncs in the mode that batches all edits.
    Raises ValueError for an invalid mode or size, and RuntimeError if `check_mirror` does.
    """
    found = _answer(request)
    if counters := found["counters"]:
        counters["batches"] = _answer({**request, "mode": BATCHED})["counters"]["syncs"]
        counters["edits"] = counters["inserts"] + counters["removals"]
    return found


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    if (mode := request["mode"]) not in RESHARDERS:
        raise ValueError(f"mode is '{mode}'; this release has: {', '.join(RESHARDERS)}")
    with ExitStack() as stack:
        stack.enter_context(fresh_state())
        program = partitioned(
            request["layers"], request["pipeline"], request["tensor"], request["rank"]
        )
        main, startup = program.main, program.startup
        block = main.global_block()
        before = {"ops_before": len(block.ops), "variables_before": len(block.vars)}
        prepared = RESHARDERS[mode](*program)
        counters = stack.enter_context(counting()) if request.get("count") else {}
        _, measured = timed(prepared.reshard)
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


# Python stack frames: they differ with the code that inserted the op.
_LEFT_OUT = {"op_callstack"}


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
    for program in (main, startup):
        for block in program.blocks:
            for line in _lines(block):
                digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def _lines(block: Any) -> Iterator[str]:
    yield json.dumps([block.idx, block.parent_idx, sorted(block.vars)])
    for op in block.ops:
        yield json.dumps(
            [
                op.type,
                {slot: op.input(slot) for slot in op.input_names},
                {slot: op.output(slot) for slot in op.output_names},
                {name: op.attr(name) for name in op.attr_names if name not in _LEFT_OUT},
            ],
            sort_keys=True,
        )
