"""One run of the Resharder on a program built for it, timed or counted."""

from contextlib import ExitStack
from typing import Any

from planners.reshard.upstream.counting import counting
from planners.reshard.upstream.decision import check_mirror, fingerprint
from planners.reshard.upstream.fresh_state import fresh_state
from planners.reshard.upstream.modes import resharder_of
from planners.reshard.upstream.partitioned import partitioned
from planners.upstream_run import timed


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
        stack.enter_context(fresh_state())
        program = partitioned(
            request["layers"], request["pipeline"], request["tensor"], request["rank"]
        )
        main, startup = program.main, program.startup
        block = main.global_block()
        before = {"ops_before": len(block.ops), "variables_before": len(block.vars)}
        prepared = resharder(*program)
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
