"""Drives one release or commit of torchrec's planner, in a child process that imports it."""

from collections import Counter
from typing import Any

import torchrec

from harness.contract import Driven, Recorder, Topology, WorkloadSpec
from planners.embedding.series.observing import counted, phases
from planners.embedding.series.planning import build
from planners.embedding.tables.torchrec_objects import plan_fingerprint


def drive(workload: WorkloadSpec, topology: Topology, planner: str) -> Driven:
    """Return a problem that a new planner plans in each call."""
    problem = build(workload, topology)

    def run(recorder: Recorder) -> list[Any]:
        with phases(recorder), recorder.call():
            return problem.plan(planner or "greedy")

    def parts() -> dict[str, Any]:
        enumerator = problem.enumerator()
        return {
            "enumerate": lambda: enumerator.enumerate(problem.module, problem.sharders),
            "search": lambda: problem.plan(planner or "greedy"),
        }

    def quality(plan: list[Any]) -> dict[str, float]:
        perf: Counter[int] = Counter()  # ms by rank; until 2023-05 a shard's perf was a number
        for option in plan:
            for shard in option.shards:
                perf[shard.rank] += getattr(shard.perf, "total", shard.perf)
        return {"max_rank_ms": max(perf.values())}

    return Driven(torchrec, run, plan_fingerprint, parts, counted, quality)
