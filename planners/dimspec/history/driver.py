"""Counts and times the conversions of a commit of ColossalAI, whose checkout is imported first.

`harness.series` asks, with the request that `harness.contract.History` describes.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import msgspec

from planners.dimspec.history import shims

shims.install()

from colossalai.tensor import shape_consistency  # noqa: E402 - the stand-ins come before it

from harness.contract import Topology, WorkloadSpec, count_calls  # noqa: E402
from planners.dimspec.problem import stream_of  # noqa: E402
from planners.dimspec.upstream import stream  # noqa: E402
from planners.instruments import replaced  # noqa: E402


def commit(request: dict[str, Any]) -> dict[str, Any]:
    """Convert a stream counted, then with every call profiled, and as often timed."""
    asked = stream_of(WorkloadSpec.parse(request["workload"]), Topology(**request["topology"]))
    queries = msgspec.to_builtins(asked.queries)
    given = {"queries": queries, "sequence": [*asked.sequence]}
    counted = stream.answer(given | {"count": True})
    calls: dict[str, int] = {}

    def profiled(_: dict[str, Any], call: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
        result, found = count_calls(call)
        calls.update(found)
        return result, {}

    with replaced([(stream, "run", profiled)]):
        stream.answer(given)
    said = json.dumps(counted["answers"])
    return {
        "imported_from": shape_consistency.__file__,
        "fingerprint": hashlib.sha256(said.encode()).hexdigest()[:16],
        "quality": {"reported_millions": sum(counted["costs"]) / 1e6},
        "counters": counted["counters"],
        "calls": {"conversion": calls},
        "cpu_s": [stream.answer(given)["cpu_s"] for _ in range(request["repeat"])],
    }


HANDLERS = {"commit": commit}
