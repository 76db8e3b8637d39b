"""One run of the Resharder on a program built for it, timed or counted."""

import gc
import time
from contextlib import ExitStack
from typing import Any

from planners.reshard.upstream.counting import counting
from planners.reshard.upstream.decision import check_mirror, fingerprint
from planners.reshard.upstream.fresh_state import anew
from planners.reshard.upstream.modes import resharder_of
from planners.reshard.upstream.partitioned import partitioned


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Build one rank's program anew, and reshard it.

    Args:
        request: `layers`, `pipeline`, `tensor` and `rank` as `partitioned` takes them; `mode`, one
            of those that `modes.RESHARDERS` has for this release; and `count`: whether to take
            counters. Where that is false, nothing of upstream is patched for it.

    Returns:
        Of `Resharder.reshard` alone, `wall_s`, `cpu_s` (process CPU time) and `counters`, empty
        unless asked for. Of the main block, `ops_before` and `variables_before`, `ops` and
        `variables` as numbers of them; and the decision's `fingerprint`.

    Raises:
        ValueError: this release does not have the mode, or there can be no such program.
        RuntimeError: the Python copy of a block differs from the C++ one afterwards.
    """
    resharder = resharder_of(request["mode"])
    with ExitStack() as stack:
        stack.enter_context(anew())
        program = partitioned(
            request["layers"], request["pipeline"], request["tensor"], request["rank"]
        )
        block = program.main.global_block()
        ops_before, variables_before = len(block.ops), len(block.vars)
        prepared = resharder(
            program.main,
            program.startup,
            program.rank,
            program.context,
            program.parameters_and_gradients,
        )
        counted = stack.enter_context(counting()) if request.get("count") else None
        gc.collect()
        stack.callback(gc.enable)
        gc.disable()
        wall, cpu = time.perf_counter(), time.process_time()
        prepared.reshard()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    for edited in (program.main, program.startup):
        check_mirror(edited)
    return {
        "wall_s": wall,
        "cpu_s": cpu,
        "counters": {} if counted is None else counted.counters(),
        "fingerprint": fingerprint(program.main, program.startup),
        "ops_before": ops_before,
        "variables_before": variables_before,
        "ops": len(block.ops),
        "variables": len(block.vars),
    }
