"""Explains the lower bound on a plan's cost: its proofs, and the tables that cost more than there.

Each argument is a proof that no plan rates lower, from simple to strong.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from harness.contract import Explanation, Section
from planners.embedding.best_plan.candidates import candidates
from planners.embedding.best_plan.limits import least_perf
from planners.embedding.best_plan.linear import linear_bound
from planners.embedding.best_plan.presolve import presolved
from planners.embedding.best_plan.proofs import RUNGS, ladder
from planners.embedding.explain.placed_plan import (
    ROUNDING,
    PlacedPlan,
    by_kind,
    described,
    gib,
    ms,
    percent_above,
)
from planners.embedding.search.space import Devices, Ints, SearchSpace

ARGUMENTS = {
    "table": "the most expensive shard of one table, however the table is cut",
    "work": "all work, evenly over ranks, with the cheapest option of each table",
    "shards": "all work, evenly over ranks, with options whose shards cost no more than the bound",
    "memory": "work and memory, as if all ranks had one memory",
    "costs": "work and memory, without options that are in no good plan",
    "patterns": "sets of whole shards that fit on a device, in time and in memory",
    "ranks": "whole shards on single ranks, each with its own memory",
}
"""What each argument takes into account. Later ones prove no less, up to rounding."""

_ENOUGH = 2**50  # bytes of a rank: more than any table has


class Reasons(NamedTuple):
    """The lower bound by each argument, and the table and the options behind it."""

    proven: dict[str, float]  # milliseconds that every plan needs, by argument
    binding: str  # the first argument that proves the whole bound
    table: int  # the table of the argument `table`
    cheapest: Ints  # the option of each table in the argument `shards`, shape (T,)
    relaxed: Ints  # in the relaxed plan with memory if memory binds, else the cheapest, shape (T,)


def reasons(space: SearchSpace, devices: Devices) -> Reasons:
    """Prove the lower bound by each argument; every table must have an option that fits."""
    left = presolved(candidates(space, devices))
    largest = np.minimum.reduceat(left.largest, left.first[:-1])
    work = math.fsum(np.minimum.reduceat(least_perf(left), left.first[:-1]))
    storage = np.full_like(devices.storage, _ENOUGH)
    shards, cheapest = linear_bound(replace(left, devices=replace(devices, storage=storage)))
    proofs = ladder(left)
    proven = {"table": float(largest.max()), "work": work / devices.ranks, "shards": shards}
    proven |= {proof.rung: proof.milliseconds for proof in proofs}
    # The arguments sum in different orders.
    whole = proofs[-1].milliseconds * (1 - ROUNDING)
    binding = next(name for name, least in proven.items() if least >= whole)
    relaxed = proofs[0].relaxed if binding in RUNGS else cheapest
    relaxed = np.where(relaxed < 0, cheapest, relaxed)
    return Reasons(proven, binding, int(largest.argmax()), cheapest, relaxed)


class TableCost(NamedTuple):
    """A table's options behind the bound and in the plan; `ms` is summed over all ranks."""

    table: str
    option: str  # the cheapest
    ms: float
    with_memory: str  # in the relaxed plan
    with_memory_ms: float
    placed: str  # in the explained plan
    placed_ms: float

    @property
    def excess_ms(self) -> float:
        """The table's cost in the plan minus that in the relaxed plan."""
        return self.placed_ms - self.with_memory_ms


def bound_explained(space: SearchSpace, plan: PlacedPlan) -> Explanation:
    """Explain the bound on all plans, and the tables that cost more than behind it."""
    devices = plan.devices
    why = reasons(space, devices)
    # A planner that knows its plan can prove a little more than the arguments without one.
    bound = max(*why.proven.values(), plan.bound_ms)
    in_plan = [plan.number[fqn] for fqn in dict.fromkeys(option.fqn for option in space.options)]
    tables = [
        TableCost(
            plan.names[number],
            *(described(space, cheapest), float(space.option_perf[cheapest])),
            *(described(space, relaxed), float(space.option_perf[relaxed])),
            *(described(plan.space, number), float(plan.space.option_perf[number])),
        )
        for number, cheapest, relaxed in zip(in_plan, why.cheapest, why.relaxed, strict=True)
    ]
    tables.sort(key=lambda table: -table.excess_ms)
    costlier = [table for table in tables if table.excess_ms > table.placed_ms * ROUNDING]
    document = {
        "ms": bound,
        "binding": why.binding,
        "proven": why.proven,
        "meaning": {name: ARGUMENTS[name] for name in why.proven},
        "table": plan.names[in_plan[why.table]],
        "needed_bytes": by_kind(space.option_storage[why.cheapest]),
        "usable_bytes": by_kind(np.maximum(devices.storage, 0)),
        "tables": [table._asdict() for table in tables],
    }
    sentences = [_distance(bound, plan), *_sentences(document, devices.ranks, tables)]
    if costlier:
        worst = costlier[0]
        sentences.append(
            f"Here {len(costlier)} of {len(tables)} tables cost more than in the relaxed plan "
            f"behind that bound, most of all {worst.table}: {ms(worst.placed_ms)} on all ranks "
            f"together as {worst.placed}, where {worst.with_memory} costs "
            f"{ms(worst.with_memory_ms)}."
        )
    section = Section(
        "The proofs of the bound, argument by argument",
        ("argument", "ms", "what it takes into account"),
        tuple((name, least, ARGUMENTS[name]) for name, least in why.proven.items()),
    )
    return Explanation(tuple(sentences), (section,), document)


def _distance(bound: float, plan: PlacedPlan) -> str:
    """Return how far the slowest rank is from the bound, by the options and by the balance."""
    slowest, mean = plan.load.rating, float(plan.load.perf.mean())
    if slowest - bound <= bound * ROUNDING:
        return f"Proven best: no plan needs less than {ms(bound)}."
    needs = (
        f"Every plan needs at least {ms(bound)}; this one is {percent_above(slowest, bound)} it."
    )
    balance = ms(slowest - mean)
    if bound - mean > bound * ROUNDING:
        return (
            f"{needs} The mean of the ranks is {ms(bound - mean)} below it, and "
            f"this rank {balance} above the mean."
        )
    return (
        f"{needs} Of the {ms(slowest - bound)} between them, {ms(max(mean - bound, 0.0))} are the "
        f"mean of the ranks above the bound, and {balance} this rank above the mean."
    )


def _sentences(bound: Mapping[str, Any], ranks: int, tables: Sequence[TableCost]) -> Iterator[str]:
    """Yield what binds, the memory that is missing, and the tables that it makes costlier."""
    proven, binding = bound["proven"], bound["binding"]
    table = f" (here {bound['table']})" if binding == "table" else ""
    memory = "memory does not bind"
    if binding in RUNGS:
        memory = (
            f"shards alone need {ms(proven['shards'])}, and {ms(proven['memory'])} as if all ranks "
            "had one memory"
        )
    yield (
        f"What bounds the result is {ARGUMENTS[binding]}{table}. It needs {ms(bound['ms'])} a "
        f"rank. All work, evenly over {ranks} ranks, needs {ms(proven['work'])}; {memory}."
    )
    for kind, needed in bound["needed_bytes"].items():
        if needed > bound["usable_bytes"][kind]:
            yield (
                f"The cheapest options take {gib(needed)} GiB of {kind}, where "
                f"{gib(bound['usable_bytes'][kind])} are usable."
            )
    moved = [table for table in tables if table.with_memory_ms > table.ms * (1 + ROUNDING)]
    if moved:
        worst = max(moved, key=lambda table: table.with_memory_ms - table.ms)
        yield (
            f"In the relaxed plan behind that bound, {len(moved)} of {len(tables)} tables cost "
            f"more than as their cheapest option, most of all {worst.table}: "
            f"{ms(worst.with_memory_ms)} on all ranks together as {worst.with_memory}, where "
            f"{worst.option} costs {ms(worst.ms)}."
        )
