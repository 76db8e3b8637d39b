"""Counts and times one plan of a commit of torchrec, whose checkout is first on the import path.

`harness.series` asks, with the request that `harness.contract.History` describes.
"""

from collections import Counter
from typing import Any

from planners.embedding.history import shims

shims.install()

import torchrec  # noqa: E402 - what a commit lacks is added before it is imported

from harness.contract import Recorder, Topology, WorkloadSpec, count_calls  # noqa: E402
from planners.embedding.releases.declared import RELEASES  # noqa: E402
from planners.embedding.releases.observing import counted, phases  # noqa: E402
from planners.embedding.releases.planning import build  # noqa: E402
from planners.embedding.tables.torchrec_objects import plan_fingerprint  # noqa: E402
from planners.instruments import timed  # noqa: E402


def commit(request: dict[str, Any]) -> dict[str, Any]:
    """Plan once to warm up, once counted, once with every call profiled, and as often timed."""
    problem = build(WorkloadSpec.parse(request["workload"]), Topology(**request["topology"]))
    problem.plan()
    recorder = Recorder()
    with phases(recorder), counted(recorder), recorder.call():
        plan = problem.plan()
    enumerator = problem.enumerator()
    _, listing = count_calls(lambda: enumerator.enumerate(problem.module, problem.sharders))
    _, whole = count_calls(problem.plan)
    search = {name: calls - listing.get(name, 0) for name, calls in whole.items()}
    return {
        "imported_from": torchrec.__file__,
        "fingerprint": plan_fingerprint(plan),
        "quality": {"max_rank_ms": _max_rank_ms(plan)},
        "counters": dict.fromkeys(RELEASES.counters, 0) | recorder.counters,
        "calls": {
            "enumerate": listing,
            "search": {name: calls for name, calls in search.items() if calls > 0},
        },
        "cpu_s": [timed(problem.plan)[1]["cpu_s"] for _ in range(request["repeat"])],
    }


def _max_rank_ms(plan: list[Any]) -> float:
    """Return the cost of the slowest rank; until 2023-05 a shard's perf was a number."""
    perf: Counter[int] = Counter()
    for option in plan:
        for shard in option.shards:
            perf[shard.rank] += getattr(shard.perf, "total", shard.perf)
    return max(perf.values())


HANDLERS = {"commit": commit}
