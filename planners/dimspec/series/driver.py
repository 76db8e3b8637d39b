"""Count and time the conversions of a commit of ColossalAI, in a child process that imports it.

`harness.series` sends the requests; `harness.contract.Series` describes them.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import msgspec
from colossalai.tensor import shape_consistency

from harness.contract import Topology, WorkloadSpec, count_calls
from planners.dimspec.problem import stream_of
from planners.dimspec.upstream import stream
from planners.instruments import replaced


def times(request: dict[str, Any]) -> dict[str, Any]:
    """Convert a stream once, and return its times and fingerprint."""
    answer = stream.answer(_stream(request))
    measured = {name: answer[name] for name in ("wall_s", "cpu_s")}
    return {"fingerprint": _fingerprint(answer), **measured, "phases": {}}


def counts(request: dict[str, Any]) -> dict[str, Any]:
    """Convert a stream with counters, then again with a count of all Python calls."""
    given = _stream(request)
    counted = stream.answer(given | {"count": True})
    calls: dict[str, int] = {}

    def profiled(_: dict[str, Any], call: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
        result, found = count_calls(call)
        calls.update(found)
        return result, {}

    with replaced([(stream, "run", profiled)]):
        stream.answer(given)
    return {
        "imported_from": shape_consistency.__file__,
        "fingerprint": _fingerprint(counted),
        "quality": {"reported_millions": sum(counted["costs"]) / 1e6},
        "counters": counted["counters"],
        "calls": {"conversion": calls},
    }


def _stream(request: dict[str, Any]) -> dict[str, Any]:
    asked = stream_of(WorkloadSpec.parse(request["workload"]), Topology(**request["topology"]))
    return {"queries": msgspec.to_builtins(asked.queries), "sequence": [*asked.sequence]}


def _fingerprint(answer: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(answer["answers"]).encode()).hexdigest()[:16]


HANDLERS = {"times": times, "counts": counts}
