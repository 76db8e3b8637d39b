"""Drives one release or commit of torchrec's planner, in a child process that imports it.

`harness.series` sends the requests that `harness.contract.Series` describes. Times and counts are
separate requests, since counting slows planning down.
"""

from collections import Counter
from importlib import metadata
from typing import Any

import torchrec

from harness.contract import Recorder, Topology, WorkloadSpec, count_calls
from planners.embedding.series.declared import SERIES
from planners.embedding.series.observing import counted, phases
from planners.embedding.series.planning import ReleaseProblem, build
from planners.embedding.tables.torchrec_objects import plan_fingerprint
from planners.instruments import timed

_problems: dict[str, ReleaseProblem] = {}


def times(request: dict[str, Any]) -> dict[str, Any]:
    """Plan once; return the process CPU seconds of the plan and of each phase."""
    problem = _problem(request)
    recorder = Recorder()

    def plan() -> list[Any]:
        with recorder.call():
            return problem.plan(_planner(request))

    with phases(recorder):
        # A long call that copies tensors needs the garbage collector to stay within memory.
        decided, measured = timed(plan, collecting=not request.get("warm_up", True))
    # Commits also run where no release is installed.
    releases = [found.version for found in metadata.distributions(name="torchrec")]
    return {
        "release": releases[0] if releases else "",
        "imported_from": torchrec.__file__,
        "fingerprint": plan_fingerprint(decided),
        **measured,
        "phases": dict(recorder.phases),
    }


def counts(request: dict[str, Any]) -> dict[str, Any]:
    """Plan with counters, then enumerate the options and plan again with all calls counted."""
    problem = _problem(request)
    recorder = Recorder()
    with phases(recorder), counted(recorder), recorder.call():
        plan = problem.plan(_planner(request))
    enumerator = problem.enumerator()
    _, listing = count_calls(lambda: enumerator.enumerate(problem.module, problem.sharders))
    calls = {"enumerate": listing}
    if "search" in request["parts"]:
        _, whole = count_calls(lambda: problem.plan(_planner(request)))
        search = {name: count - listing.get(name, 0) for name, count in whole.items()}
        calls["search"] = {name: count for name, count in search.items() if count > 0}
    return {
        "imported_from": torchrec.__file__,
        "fingerprint": plan_fingerprint(plan),
        "quality": {"max_rank_ms": _max_rank_ms(plan)},
        "counters": dict.fromkeys(SERIES.counters, 0) | recorder.counters,
        "calls": calls,
    }


def _planner(request: dict[str, Any]) -> str:
    return str(request.get("planner") or "greedy")


def _problem(request: dict[str, Any]) -> ReleaseProblem:
    """Return a problem, built and planned once per process, since first plans are different."""
    key = f"{request['workload']} {request['topology']}"
    if key not in _problems:
        workload = WorkloadSpec.parse(request["workload"])
        problem = build(workload, Topology(**request["topology"]))
        if request.get("warm_up", True):
            problem.plan(_planner(request))
        _problems[key] = problem
    return _problems[key]


def _max_rank_ms(plan: list[Any]) -> float:
    """Return the ms of the slowest rank; until 2023-05 a shard's perf was a number."""
    perf: Counter[int] = Counter()
    for option in plan:
        for shard in option.shards:
            perf[shard.rank] += getattr(shard.perf, "total", shard.perf)
    return max(perf.values())


HANDLERS = {"times": times, "counts": counts}
