"""Build the problems of the dimspec family; check, hash, rate and list; observe searches."""

import hashlib
import math
import struct
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager

from harness.contract import (
    Column,
    InfeasibleDecision,
    Inventory,
    Progress,
    Recorder,
    Topology,
    UpstreamProblem,
    UsageError,
    WorkloadSpec,
)
from planners.dimspec import problem as problems
from planners.dimspec.conversion import greedy, interned
from planners.dimspec.conversion.steps import (
    NO_CONVERSION,
    Conversion,
    after_step,
    candidate_steps,
    sharding_name,
    step_cost,
)
from planners.dimspec.problem import (
    Answers,
    Query,
    RecordedAnswer,
    Search,
    Stream,
    answer,
    build,
)
from planners.instruments import replaced

__all__ = ["build", "facts", "fingerprint", "inventory", "observe", "quality", "validate"]

# The relative difference between sums of the same costs in different orders is below this.
_ROUNDING = 1e-9
_MILLION = 1e6


def facts(stream: Stream) -> dict[str, float | str]:
    """Return facts for reports; the number of conversions is the problem's size."""
    return {
        "conversions": len(stream.sequence),
        "distinct": len(stream.queries),
        "mesh": stream.meshes,
    }


def fingerprint(answers: Answers) -> str:
    """Return a hash of all paths, steps and exact costs."""
    digest = hashlib.sha256()
    for path, comms, cost in answers.conversions:
        digest.update(repr((path, tuple(map(tuple, comms)))).encode())
        digest.update(struct.pack("3d", *cost))
    digest.update(struct.pack(f"{len(answers.costs)}d", *answers.costs))
    return digest.hexdigest()[:16]


def validate(stream: Stream, answers: Answers) -> None:
    """Raise InfeasibleDecision if a conversion does not lead from its source to its target."""
    queries, conversions = stream.queries, answers.conversions
    if len(conversions) != len(queries):
        raise InfeasibleDecision(f"{len(conversions)} conversions answer {len(queries)} queries.")
    for number, (query, conversion) in enumerate(zip(queries, conversions, strict=True)):
        if fault := _fault(query, conversion):
            raise InfeasibleDecision(f"Conversion {number}: {fault}.")
    if list(answers.costs) != [conversions[index].cost.total for index in stream.sequence]:
        raise InfeasibleDecision("A call reported another cost than that of its conversion.")


def _fault(query: Query, conversion: Conversion) -> str:
    """Return what is wrong with the answer to a query, or an empty text."""
    mesh, shape, source, target = query
    path, comms, cost = conversion
    if not all(math.isfinite(part) and part >= 0 for part in cost):
        return f"its cost is {cost}"
    if dict(source) == dict(target):
        is_nothing = conversion == NO_CONVERSION
        return "" if is_nothing else "it has steps although its source is its target"
    layouts = [dict(partition) for partition in path]
    if len(layouts) < 2 or layouts[0] != dict(source) or layouts[-1] != dict(target):
        return "its path does not lead from its source to its target"
    if len(comms) != len(layouts) - 1:
        return f"{len(comms)} steps join {len(layouts)} partitions"
    for before, step, after in zip(layouts, comms, layouts[1:], strict=False):
        is_candidate = step in candidate_steps(before, len(shape), len(mesh.shape))
        if not is_candidate or after_step(before, step) != after:
            return f"{step} does not make {after} of {before}"
        if not mesh.divides(shape, after):
            return f"mesh {mesh} does not divide a tensor of shape {shape} by {after}"
    return ""


def quality(stream: Stream, answers: Answers) -> Mapping[str, float]:
    """Return the total costs of answers, in millions of cost units, and counts of conversions.

    `cheapest_millions` is a proven lower bound: Dijkstra's algorithm over the same steps finds it.
    """
    conversions = answers.conversions
    cheapest = answer(stream, interned.CheapestSearch()).conversions
    paid = list(map(true_cost, stream.queries, conversions))
    least = list(map(true_cost, stream.queries, cheapest))
    calls = Counter(stream.sequence)

    def millions(costs: list[float]) -> float:
        return sum(calls[number] * cost for number, cost in enumerate(costs)) / _MILLION

    qualities: dict[str, float] = {
        "cost_millions": millions(paid),
        "cheapest_millions": millions(least),
        "reported_millions": millions([conversion.cost.total for conversion in conversions]),
        "dearer_conversions": sum(
            cost > bound * (1 + _ROUNDING) for cost, bound in zip(paid, least, strict=True)
        ),
    }
    if stream.recorded is not None:
        triples = zip(stream.queries, conversions, stream.recorded, strict=True)
        qualities["unlike_recorded"] = sum(
            _named(len(query.shape), conversion) != recorded
            for query, conversion, recorded in triples
        )
    return qualities


def true_cost(query: Query, conversion: Conversion) -> float:
    """Return the summed cost of a conversion's steps, forward plus backward, in cost units.

    Each step counts once, unlike in the compounded costs that ColossalAI reports.
    """
    mesh, shape = query.mesh, query.shape
    return math.fsum(
        step_cost(mesh, step, mesh.local_elements(shape, partition)).total
        for partition, step in zip(conversion.path, conversion.comms, strict=False)
    )


def _named(rank: int, conversion: Conversion) -> RecordedAnswer:
    path = tuple(sharding_name(rank, partition) for partition in conversion.path)
    return RecordedAnswer(path, tuple(step.pattern for step in conversion.comms), conversion.cost)


def observe(recorder: Recorder) -> AbstractContextManager[None]:
    """Record counters, phases and progress of all searches in the `with` block."""
    counted, timed = recorder.counted, recorder.timed

    def answer_counted(stream: Stream, search: Search) -> Answers:
        counters, calls = recorder.counters, len(stream.sequence)
        recorder.progress = lambda: Progress(counters["conversions"], calls, "conversions")
        if recorder.current is not None:
            counters["distinct_searches"] += len(set(stream.queries))
        return answer(stream, search)

    layouts, search = interned.Layouts, greedy.GreedySearch
    build_differences = timed("dictionaries", greedy.build_differences, "dictionaries_built")
    counters = (
        (search, "convert", "conversions"),
        (interned.InternedSearch, "convert", "conversions"),
        (search, "search", "searches"),
        (interned.InternedSearch, "search", "searches"),
        (interned.CheapestSearch, "search", "searches"),
        (layouts, "expand", "expansions"),
        (greedy.DimSpec, "__init__", "dim_specs_built"),
        (greedy.DimSpec, "difference", "difference_calls"),
        (greedy.ShardingSpec, "__init__", "sharding_specs_built"),
        (interned.Spec, "__init__", "sharding_specs_built"),
    )
    return replaced(
        [
            (problems, "answer", answer_counted),
            (greedy, "build_differences", build_differences),
            (search, "expand", timed("expansion", search.expand, "expansions")),
            (layouts, "__init__", timed("expansion", layouts.__init__)),
            *(
                (owner, name, counted(counter, getattr(owner, name)))
                for owner, name, counter in counters
            ),
        ]
    )


_COLUMNS = (
    Column("shape", unit="elements"),
    Column("source"),
    Column("target"),
    Column("mesh"),
    Column("elements", kind="count", scale="log"),
    Column("asked", unit="times", kind="count", scale="log"),
)


def inventory(workload: WorkloadSpec, topology: Topology | None) -> Inventory:
    """List the distinct conversions of a workload.

    Raises UsageError if the workload is invalid or a model, or if nothing determines its mesh.
    """
    stream = build(workload, topology)
    if isinstance(stream, UpstreamProblem):
        raise UsageError(
            f"Workload '{workload}' is a model; its conversions are known once ColossalAI has run."
        )
    asked = Counter(stream.sequence)
    rows = tuple(
        (
            "x".join(map(str, query.shape)),
            sharding_name(len(query.shape), query.source),
            sharding_name(len(query.shape), query.target),
            str(query.mesh),
            math.prod(query.shape),
            asked[index],
        )
        for index, query in enumerate(stream.queries)
    )
    return Inventory(
        title=f"Conversions of {workload}",
        part="conversion",
        columns=_COLUMNS,
        rows=rows,
        summary=f"{len(rows):,} distinct conversions, asked for {len(stream.sequence):,} times, "
        f"of tensors of {len({row[0] for row in rows}):,} shapes on {stream.meshes}",
        sort="asked",
    )
