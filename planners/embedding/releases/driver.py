"""Drives one release of torchrec's planner, in a child process that has it on its import path.

`harness.releases` asks, with the requests that `harness.contract.Releases` describes. What is timed
is planned in a call of its own, since counting slows down what it counts.
"""

import gc
import time
from importlib import metadata
from typing import Any

from harness.contract import Recorder, Topology, WorkloadSpec
from harness.contract.calls import count_calls
from planners.embedding.releases.observing import counted, phases
from planners.embedding.releases.planning import ReleaseProblem, build, fingerprint, max_rank_ms

_problems: dict[str, ReleaseProblem] = {}


def times(request: dict[str, Any]) -> dict[str, Any]:
    """Plan once, timed: process CPU seconds of the whole, and of each phase."""
    problem = _problem(request)
    recorder = Recorder()
    gc.collect()
    gc.disable()
    try:
        with phases(recorder), recorder.call():
            wall, cpu = time.perf_counter(), time.process_time()
            plan = problem.plan()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    finally:
        gc.enable()
    return {
        "release": metadata.version("torchrec"),
        "fingerprint": fingerprint(plan),
        "wall_s": wall,
        "cpu_s": cpu,
        "phases": dict(recorder.phases),
    }


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
        "quality": {"max_rank_ms": max_rank_ms(problem, plan)},
        "calls": calls,
    }


def _problem(request: dict[str, Any]) -> ReleaseProblem:
    """Build a problem, once in a child, and enumerate it, so that what is imported late is."""
    key = f"{request['workload']} {request['topology']}"
    if key not in _problems:
        workload = WorkloadSpec.parse(request["workload"])
        problem = build(workload, Topology(**request["topology"]))
        problem.enumerate()
        _problems[key] = problem
    return _problems[key]


HANDLERS = {"times": times, "counts": counts}
