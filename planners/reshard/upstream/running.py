"""One run of the Resharder on a program built for it, timed or counted."""

from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from paddle.base.framework import Block
from paddle.distributed.auto_parallel.static.reshard import Resharder

from planners.instruments import counted, timed
from planners.reshard.upstream.decision import check_mirror, fingerprint
from planners.reshard.upstream.modes import RESHARDERS
from planners.reshard.upstream.partitioned import fresh_state, partitioned


def counting() -> AbstractContextManager[Counter[str]]:
    """Count until left: inserted ops, removed variables, reshardings, and whole-block syncs.

    `ops_visited` and `values_visited` are what blocks have when their syncs begin, summed up.
    """

    def sync(counters: Counter[str], block: Any) -> None:
        counters.update(syncs=1, ops_visited=block.desc.op_size(), values_visited=len(block.vars))

    return counted(
        (Block, "_insert_op_without_sync", "inserts"),  # which `_insert_op` calls as well
        (Block, "_remove_var", "removals"),
        (Resharder, "parse_op_desc", "parses"),  # also where none of the ops is for this rank
        (Block, "_sync_with_cpp", sync),
        others=("syncs", "ops_visited", "values_visited"),
    )


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Build one rank's program anew, and reshard it.

    The request has `layers`, `pipeline`, `tensor` and `rank` as `partitioned` takes them; `mode`,
    one of `modes.RESHARDERS`; and `count`: whether to take counters, else nothing is patched.
    Returns `wall_s`, `cpu_s` (process CPU time) and `counters` of `Resharder.reshard` alone; how
    many ops and variables the main block has, before and after; and the decision's `fingerprint`.
    Raises ValueError for a mode or a program that cannot be, RuntimeError for a copy that differs.
    """
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
