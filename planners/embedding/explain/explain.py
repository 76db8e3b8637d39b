"""Explains a plan: its slowest rank, the bound on all plans, alternatives, and another plan.

All figures are estimates, of torchrec or of a calibrated machine. `docs/torchrec.md` documents the
keys of the JSON document.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from harness.contract import Explanation, Question, Section, unknown
from planners.embedding.decision import Plan
from planners.embedding.explain.alternatives import TableExplained, options_section, table_explained
from planners.embedding.explain.bound import bound_explained
from planners.embedding.explain.placed_plan import (
    KINDS,
    PlacedPlan,
    Row,
    described,
    gib,
    in_gib,
    ms,
    percent_above,
    shortened,
)
from planners.embedding.plan_files.table import PlanTable
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.quality import arrays, quality, ruler
from planners.embedding.search.space import Load

# The components of torchrec's `Perf` that its total sums.
_PERF = "fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms", "prefetch_compute"
_MOST_SHARDS = 12
_NEAR = 0.99


def explain(problem: EmbeddingProblem, plan: Plan, question: Question[Plan]) -> Explanation:
    """Explain a valid plan: one of its ranks, the bound, and the rank's most expensive tables."""
    space, devices = arrays(problem)
    plan = Plan(tuple(problem.judged(plan.options)), plan.bound_ms)
    placed = PlacedPlan(plan, devices)
    load, slowest = placed.load, int(placed.load.perf.argmax())
    rank = slowest if question.rank is None else question.rank
    tables = [
        table_explained(problem, space, placed, rank, table)
        for table in _most_expensive(placed, rank)[: question.top]
    ]
    shards = _rank(placed, rank, max(question.top, _MOST_SHARDS))
    memory_sentences, memory = _memory(placed)
    bound = bound_explained(space, placed)
    against = Explanation((), (), {})
    if question.other_decision is not None:
        judged = problem.judged(question.other_decision.options)
        other = PlacedPlan(Plan(tuple(judged)), devices)
        against = _difference(placed, other, question.other, question.top)
    sentences = (
        ruler(problem, quality(problem, plan)),
        _slowest(load, slowest),
        *bound.sentences,
        *memory_sentences,
        *_best(tables, rank),
        *against.sentences,
    )
    sections = (
        *shards.sections,
        *(options_section(table, rank) for table in tables),
        *bound.sections,
        *against.sections,
    )
    document = {
        "slowest_rank": slowest,
        "slowest_ms": load.rating,
        "mean_ms": float(load.perf.mean()),
        "ranks_ms": load.perf.tolist(),
        "bound": bound.document,
        "memory": memory,
        "rank": shards.document,
        "tables": [asdict(table) for table in tables],
        "against": against.document or None,
    }
    return Explanation(sentences, sections, document)


def explain_table(problem: EmbeddingProblem, plan: Plan, question: Question[Plan]) -> Explanation:
    """Explain a table of a valid plan, on the rank where it costs most.

    Raises UsageError for an unknown table.
    """
    space, devices = arrays(problem)
    placed = PlacedPlan(Plan(tuple(problem.judged(plan.options))), devices)
    if question.table not in placed.names:
        raise unknown("table", question.table, placed.names)
    number = placed.names.index(question.table)
    rank = int(placed.load_of(np.array([number])).perf.argmax())
    table = table_explained(problem, space, placed, rank, number)
    now, best = table.alternatives[0], table.best
    change = "No other placement of this table alone makes it faster."
    if not best.present:
        change = (
            f"With this table as {best.option}, it would be rank {best.slowest_rank} with "
            f"{ms(best.slowest_ms)}."
        )
    sentences = [
        f"Table {table.table} is placed as {now.option}; the slowest rank is rank "
        f"{now.slowest_rank} with {ms(now.slowest_ms)}. {change}"
    ]
    if table.left_out:
        sentences.append(f"TorchRec enumerates no option with {', '.join(table.left_out)}.")
    return Explanation(tuple(sentences), (options_section(table, rank),), asdict(table))


def _most_expensive(plan: PlacedPlan, rank: int) -> list[int]:
    """Return the tables with shards on a rank, in order of decreasing cost there."""
    on_rank = plan.rank == rank
    tables, costs = plan.table[on_rank], plan.space.total[plan.space.estimate[on_rank]]
    cost = np.bincount(tables, costs, len(plan.options))
    return sorted(set(tables.tolist()), key=lambda table: (-cost[table], table))


def _slowest(load: Load, rank: int) -> str:
    slowest, mean = load.rating, float(load.perf.mean())
    near = int((load.perf >= slowest * _NEAR).sum()) - 1
    return (
        f"Rank {rank} is the slowest with {ms(slowest)}, {percent_above(slowest, mean)} the mean "
        f"of {ms(mean)}; {near or 'none'} of the other {len(load.perf) - 1} ranks are within 1 % "
        "of it."
    )


def _memory(plan: PlacedPlan) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the rank that uses the largest share of each kind of memory, as text and figures."""
    sentences, figures = [], []
    for kind, used, usable in zip(KINDS, plan.load.used.T, plan.devices.storage.T, strict=True):
        if used.any():
            rank = int((used / np.maximum(usable, 1)).argmax())
            most, whole = int(used[rank]), int(usable[rank])
            share = f" ({100 * most / whole:.1f} %)" if whole > 0 else ""
            sentences.append(
                f"{kind} is fullest on rank {rank}: {gib(most)} of {gib(whole)} GiB{share}."
            )
            figures.append({"kind": kind, "rank": rank, "bytes": most, "usable_bytes": whole})
    return sentences, figures


def _rank(plan: PlacedPlan, rank: int, most: int) -> Explanation:
    """Explain the shards of a rank, the most expensive first; text has `most` of them."""
    whole, (hbm, ddr, _) = float(plan.load.perf[rank]), plan.load.used[rank].tolist()
    shards = [
        (name, option, shard)
        for name, option in zip(plan.names, plan.options, strict=True)
        for shard in option.shards
        if shard.rank == rank
    ]
    shards.sort(key=lambda named: -named[2].perf.total)
    figures: list[dict[str, Any]] = []
    rows: list[Row] = []
    for name, option, shard in shards:
        perf = {part: float(getattr(shard.perf, part)) for part in _PERF}
        (height, width), total = map(int, shard.size), float(shard.perf.total)
        share = total / whole if whole else 0.0
        figures.append(
            {
                "table": name,
                "sharding_type": option.sharding_type,
                "compute_kernel": option.compute_kernel,
                "size": (height, width),
                "ms": total,
                "share": share,
                "perf_ms": perf,
                "hbm_bytes": int(shard.storage.hbm),
                "ddr_bytes": int(shard.storage.ddr),
            }
        )
        kind = f"{option.sharding_type} {option.compute_kernel}"
        bytes_ = in_gib(shard.storage.hbm), in_gib(shard.storage.ddr)
        rows.append((name, f"{height:,} x {width}", kind, total, f"{100 * share:.0f} %", *bytes_))
    perf = {part: sum(shard["perf_ms"][part] for shard in figures) for part in _PERF}
    all_shards = ("all", "", "", whole, "", in_gib(hbm), in_gib(ddr))
    section = Section(
        f"On rank {rank}",
        ("table", "rows x dim", "option", "ms", "share", "HBM\nGiB", "DDR\nGiB"),
        (*shortened(rows, most, summed=3), all_shards),
    )
    document = {
        "rank": rank,
        "ms": whole,
        "perf_ms": perf,
        "hbm_bytes": hbm,
        "ddr_bytes": ddr,
        "shards": figures,
    }
    return Explanation((), (section,), document)


def _best(tables: Sequence[TableExplained], rank: int) -> Iterator[str]:
    """Yield which of the tables helps most if it is placed differently."""
    if not tables:
        return
    table = min(tables, key=lambda table: table.best.slowest_ms)
    best, count = table.best, len(tables)
    several = f"the {count} most expensive tables" if count > 1 else "the most expensive table"
    if best.present:
        yield (
            f"Placing {'one of ' * (count > 1)}{several} of rank {rank} differently, while all "
            "other tables stay, does not make the slowest rank faster."
        )
    else:
        yield (
            f"Of all alternatives for {several} of rank {rank}, {table.table} as {best.option} "
            f"helps most: while all other tables stay, the slowest rank would be rank "
            f"{best.slowest_rank} with {ms(best.slowest_ms)}."
        )


def _difference(here: PlacedPlan, there: PlacedPlan, variant: str, top: int) -> Explanation:
    """Compare two plans table by table, the largest difference of mean cost first."""
    by_options = float(here.load.perf.mean() - there.load.perf.mean())
    slower = here.load.rating - there.load.rating
    tables: list[dict[str, Any]] = []
    other_options = 0
    ours, theirs = (
        PlanTable.of_options(plan.options, plan.devices.ranks) for plan in (here, there)
    )
    for table, option in enumerate(here.options):
        now, then = ours.tables[option.fqn], theirs.tables[option.fqn]
        if now == then:
            continue
        other_options += now != replace(then, ranks=now.ranks)
        number = there.number[option.fqn]
        load, moved = here.without(table), there.load_of(np.array([number]))
        here_ms = float(here.space.option_perf[table])
        there_ms = float(there.space.option_perf[number])
        tables.append(
            {
                "table": here.names[table],
                "here": described(here.space, table),
                "there": described(there.space, number),
                "here_ms": here_ms,
                "there_ms": there_ms,
                "mean_ms": (here_ms - there_ms) / here.devices.ranks,
                "alone_ms": float((load.perf + moved.perf).max()),
                "fits": bool((load.used + moved.used <= here.devices.storage).all()),
            }
        )
    tables.sort(key=lambda table: (-abs(table["mean_ms"]), table["alone_ms"]))
    document = {
        "variant": variant,
        "slowest_ms": there.load.rating,
        "mean_ms": float(there.load.perf.mean()),
        "by_options_ms": by_options,
        "by_balance_ms": slower - by_options,
        "other_options": other_options,
        "other_ranks": len(tables) - other_options,
        "tables": tables,
    }
    if not tables:
        return Explanation((f"{variant} decides the same.",), (), document)
    sentences = (
        f"The slowest rank of {variant} costs {ms(there.load.rating)}, {_saved(slower)}: "
        f"{_saved(by_options)} by the options (the mean of the ranks), and "
        f"{_saved(slower - by_options)} by the balance (the slowest rank above the mean).",
        f"Tables with another option there: {other_options}; with the same option on other "
        f"ranks: {len(tables) - other_options}.",
    )
    rows: list[Row] = [
        (
            table["table"],
            table["here"],
            table["there"] if table["here"] != table["there"] else "the same, on other ranks",
            table["mean_ms"],
            table["alone_ms"] if table["fits"] else None,
        )
        for table in tables
    ]
    unfit = [table["table"] for table in tables[:top] if not table["fits"]]
    remark = f"Alone, these do not fit into the memory that is left: {', '.join(unfit)}."
    section = Section(
        f"What {variant} places differently",
        ("table", "here", "there", "adds to\nthe mean", "slowest if\nit alone"),
        (*shortened(rows, top, summed=3), ("all", "", "", by_options, None)),
        (remark,) if unfit else (),
    )
    return Explanation(sentences, (section,), document)


def _saved(value: float) -> str:
    """Return milliseconds that something costs less as text; negative ones are more."""
    return f"{ms(abs(value))} {'less' if value >= 0 else 'more'}"
