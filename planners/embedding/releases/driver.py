"""Drives one release of torchrec's planner, in a child process that has it on its import path.

`harness.series` asks, with the requests that `harness.contract.Releases` describes. What is timed
is planned in a call of its own, since counting slows down what it counts.
"""

from importlib import metadata
from typing import Any

from harness.contract import Recorder, Topology, WorkloadSpec, count_calls
from planners.embedding.releases.observing import counted, phases
from planners.embedding.releases.planning import ReleaseProblem, build
from planners.embedding.tables.torchrec_objects import perf_by_rank, plan_fingerprint
from planners.instruments import timed

_problems: dict[str, ReleaseProblem] = {}


def times(request: dict[str, Any]) -> dict[str, Any]:
    """Plan once, timed: process CPU seconds of the whole, and of each phase."""
    problem = _problem(request)
    recorder = Recorder()

    def plan() -> list[Any]:
        with recorder.call():
            return problem.plan()

    with phases(recorder):
        found, measured = timed(plan)
    release, fingerprint = metadata.version("torchrec"), plan_fingerprint(found)
    phases_s = dict(recorder.phases)
    return {"release": release, "fingerprint": fingerprint, **measured, "phases": phases_s}


def counts(request: dict[str, Any]) -> dict[str, Any]:
    """Plan once timed and once counted, and enumerate once more with every call counted."""
    answer = times(request)
    problem = _problem(request)
    recorder = Recorder()
    with phases(recorder), counted(recorder), recorder.call():
        plan = problem.plan()
    enumerator = problem.enumerator()
    _, calls = count_calls(lambda: enumerator.enumerate(problem.module, problem.sharders))
    return answer | {
        "counters": dict(recorder.counters),
        "quality": {"max_rank_ms": max(perf_by_rank(plan, problem.topology))},
        "calls": calls,
    }


def _problem(request: dict[str, Any]) -> ReleaseProblem:
    """Build a problem, once in a child, and plan it, since a first call is no like the others."""
    key = f"{request['workload']} {request['topology']}"
    if key not in _problems:
        workload = WorkloadSpec.parse(request["workload"])
        problem = build(workload, Topology(**request["topology"]))
        problem.plan()
        _problems[key] = problem
    return _problems[key]


HANDLERS = {"times": times, "counts": counts}
