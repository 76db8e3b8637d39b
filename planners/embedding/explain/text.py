"""Formats an explanation of a plan for readers: sentences with the main figures, and tables."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from harness.contract import Section
from planners.embedding.explain import records

Row = tuple[str | float | None, ...]

_MOST_SHARDS = 12
_NEAR = 0.99
# A smaller share of a figure than this is rounding.
_ROUNDING = 1e-9


def sentences(found: records.PlanExplained) -> Iterator[str]:
    """Yield sentences on the plan's cost, the bound on every plan, and changes that would help."""
    bound, slowest, mean = found.bound.ms, found.slowest_ms, found.mean_ms
    near = sum(ms >= slowest * _NEAR for ms in found.ranks_ms) - 1
    yield (
        f"Rank {found.slowest_rank} is the slowest with {_ms(slowest)}, {_above(slowest, mean)} "
        f"the mean of {_ms(mean)}; {near or 'none'} of the other {len(found.ranks_ms) - 1} ranks "
        "are within 1 % of it."
    )
    if slowest - bound > bound * _ROUNDING:
        mean_above = mean - bound if abs(mean - bound) > bound * _ROUNDING else 0.0
        yield (
            f"Every plan needs at least {_ms(bound)}; this one is {_above(slowest, bound)} it. Of "
            f"the {_ms(slowest - bound)} between them, {_ms(mean_above)} are the mean of the "
            f"ranks above the bound, and {_ms(slowest - mean)} this rank above the mean."
        )
    else:
        yield f"Proven best: no plan needs less than {_ms(bound)}."
    yield from _bound(found.bound, len(found.ranks_ms))
    for memory in found.memory:
        used, usable = memory.bytes, memory.usable_bytes
        share = f" ({100 * used / usable:.1f} %)" if usable > 0 else ""
        yield (
            f"{memory.kind} is fullest on rank {memory.rank}: {_gib(used)} of {_gib(usable)} "
            f"GiB{share}."
        )
    if found.tables:
        yield _best(found)
    if found.against:
        yield from _against(found, found.against)


def _bound(bound: records.BoundExplained, ranks: int) -> Iterator[str]:
    """Yield sentences on the binding argument, and on tables that cost more than it assumes."""
    proven, binding = bound.proven, bound.binding
    table = f" (here {bound.table})" if binding == "table" else ""
    memory = "memory does not bind"
    if binding not in ("table", "work", "shards"):
        with_memory = f"{_ms(proven['memory'])} as if all ranks had one memory"
        memory = f"shards alone need {_ms(proven['shards'])}, and {with_memory}"
    yield (
        f"What bounds the result is {bound.meaning[binding]}{table}. It needs {_ms(bound.ms)} a "
        f"rank. All work, evenly over {ranks} ranks, needs {_ms(proven['work'])}; {memory}."
    )
    for kind, needed in bound.needed_bytes.items():
        if needed > bound.usable_bytes[kind]:
            yield (
                f"The cheapest options take {_gib(needed)} GiB of {kind}, where "
                f"{_gib(bound.usable_bytes[kind])} are usable."
            )
    all_tables = f"{len(bound.tables)} tables"
    moved = [table for table in bound.tables if table.with_memory_ms > table.ms * (1 + _ROUNDING)]
    if moved:
        worst = max(moved, key=lambda table: table.with_memory_ms - table.ms)
        yield (
            f"In the relaxed plan behind that bound, {len(moved)} of {all_tables} cost more than "
            f"as their cheapest option, most of all {worst.table}: {_ms(worst.with_memory_ms)} on "
            f"all ranks together as {worst.with_memory}, where {worst.option} costs "
            f"{_ms(worst.ms)}."
        )
    costlier = _costlier(bound)
    if costlier:
        worst = costlier[0]
        yield (
            f"Here {len(costlier)} of {all_tables} cost more than in the relaxed plan behind that "
            f"bound, most of all {worst.table}: {_ms(worst.placed_ms)} on all ranks together as "
            f"{worst.placed}, where {worst.with_memory} costs {_ms(worst.with_memory_ms)}."
        )


def _costlier(bound: records.BoundExplained) -> list[records.BoundTable]:
    """Return the tables that cost more than in the relaxed plan, the largest excess first."""
    return [table for table in bound.tables if table.excess_ms > table.placed_ms * _ROUNDING]


def _best(found: records.PlanExplained) -> str:
    table = min(found.tables, key=lambda table: table.best.slowest_rank_ms or 0.0)
    option, count, rank = table.best, len(found.tables), found.rank.rank
    assert option.slowest_rank_ms is not None
    tables = f"the {count} most expensive tables" if count > 1 else "the most expensive table"
    if option.present:
        return (
            f"Placing {'one of ' * (count > 1)}{tables} of rank {rank} differently, while all "
            "other tables stay, does not make the slowest rank faster."
        )
    return (
        f"Of all alternatives for {tables} of rank {rank}, {table.table} as {option.option} helps "
        f"most: while all other tables stay, the slowest rank would be rank {option.slowest_rank} "
        f"with {_ms(option.slowest_rank_ms)}."
    )


def _against(found: records.PlanExplained, other: records.PlanDifference) -> Iterator[str]:
    if not other.tables:
        yield f"{other.variant} decides the same."
        return
    yield (
        f"The slowest rank of {other.variant} costs {_ms(other.slowest_ms)}, "
        f"{_signed(found.slowest_ms - other.slowest_ms)}: {_signed(other.by_options_ms)} by the "
        f"options (the mean of the ranks), and {_signed(other.by_balance_ms)} by the balance (the "
        "slowest rank above the mean)."
    )
    yield (
        f"Tables with another option there: {other.other_options}; with the same option on other "
        f"ranks: {other.other_ranks}."
    )


def sections(found: records.PlanExplained, top: int) -> Iterator[Section]:
    """Yield sections: shards of the rank, alternatives of its tables, the bound, differences."""
    yield from _rank(found.rank, max(top, _MOST_SHARDS))
    shown: Mapping[str, str] = {}
    for table in found.tables:
        yield alternatives(
            table, found.rank.rank, table.left_out if table.left_out != shown else {}
        )
        shown = table.left_out
    costlier: list[Row] = [
        (t.table, t.placed, t.with_memory, t.placed_ms, t.with_memory_ms, t.excess_ms)
        for t in _costlier(found.bound)
    ]
    if costlier:
        yield Section(
            "What costs more here than in the relaxed plan behind the bound",
            ("table", "here", "relaxed", "ms\nhere", "ms\nrelaxed", "more"),
            _with_rest(costlier, top, summed=5),
            ("These are milliseconds on all ranks together.",),
        )
    yield Section(
        "The proofs of the bound, argument by argument",
        ("argument", "ms", "what it takes into account"),
        tuple((name, ms, found.bound.meaning[name]) for name, ms in found.bound.proven.items()),
    )
    if found.against and found.against.tables:
        yield _differences(found.against, top)


def _with_rest(rows: Sequence[Row], most: int, summed: int, rest: str = "more") -> tuple[Row, ...]:
    """Return the first `most` rows, and a row for the others with the sum of column `summed`."""
    others = rows[most:]
    if not others:
        return tuple(rows)
    last: list[str | float | None] = ["" if isinstance(cell, str) else None for cell in others[0]]
    last[0] = f"{len(others)} {rest}"
    last[summed] = sum(float(row[summed] or 0.0) for row in others)
    return (*rows[:most], tuple(last))


def _rank(rank: records.RankExplained, most: int) -> Iterator[Section]:
    shards: list[Row] = [
        (
            shard.table,
            f"{shard.size[0]:,} x {shard.size[1]}",
            f"{shard.sharding_type} {shard.compute_kernel}",
            shard.ms,
            f"{100 * shard.share:.0f} %",
            _rounded(shard.hbm_bytes),
            _rounded(shard.ddr_bytes),
        )
        for shard in rank.shards
    ]
    whole: Row = ("all", "", "", rank.ms, "", _rounded(rank.hbm_bytes), _rounded(rank.ddr_bytes))
    yield Section(
        f"On rank {rank.rank}",
        ("table", "rows x dim", "option", "ms", "share", "HBM\nGiB", "DDR\nGiB"),
        (*_with_rest(shards, most, summed=3, rest="more shards"), whole),
    )
    kinds: list[Row] = [(shard.table, *shard.perf_ms.values()) for shard in rank.shards[:most]]
    yield Section(
        "The same in milliseconds of each kind of work",
        ("table", *(records.PERF[name] for name in rank.perf_ms)),
        (*kinds, ("all", *rank.perf_ms.values())),
    )


def alternatives(table: records.TableExplained, rank: int, left_out: Mapping[str, str]) -> Section:
    """Return a section with the alternatives for a table, and what forbids others."""
    gib = "HBM\nGiB", "DDR\nGiB"
    return Section(
        f"Alternatives for {table.table}, now {_ms(table.rank_ms)} of rank {rank}",
        ("option", "ms", "largest\nshard", *gib, f"rank {rank}\nthen", "slowest\nthen"),
        tuple(
            (
                option.option + (" (now)" if option.present else ""),
                option.ms,
                option.largest_shard_ms,
                _rounded(option.hbm_bytes),
                _rounded(option.ddr_bytes),
                option.this_rank_ms,
                option.slowest_rank_ms,
            )
            for option in table.alternatives
            if not option.why_not
        ),
        tuple(_remarks(table.alternatives, left_out)),
    )


def _remarks(
    alternatives: Sequence[records.Alternative], left_out: Mapping[str, str]
) -> Iterator[str]:
    """Yield a remark for each reason, with the options that are impossible for that reason."""
    lacking = defaultdict[tuple[str, int], list[str]](list)
    others, reasons = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for option in alternatives:
        if option.lacking:
            needs = f"{option.option} ({_gib(option.needed_bytes)} GiB)"
            lacking[option.lacking, option.free_bytes].append(needs)
        elif option.why_not:
            others[option.why_not].append(option.option)
    for name, why in left_out.items():
        reasons[why].append(name)
    for (kind, free), options in lacking.items():
        yield (
            f"Not possible, since a shard needs more {kind} than the {_gib(free)} GiB that are "
            f"free on its ranks: {', '.join(options)}."
        )
    for why_not, options in others.items():
        yield f"Not possible: {', '.join(options)}: {why_not}."
    for why, names in reasons.items():
        yield f"Left out, since {why}: {', '.join(names)}."


def _differences(other: records.PlanDifference, top: int) -> Section:
    rows: list[Row] = [
        (
            table.table,
            table.here,
            table.there if table.here != table.there else "the same, on other ranks",
            table.mean_ms,
            table.alone_ms if table.fits else None,
        )
        for table in other.tables
    ]
    unfit = [table.table for table in other.tables[:top] if not table.fits]
    remark = f"Alone, these do not fit into the memory that is left: {', '.join(unfit)}."
    return Section(
        f"What {other.variant} places differently",
        ("table", "here", "there", "adds to\nthe mean", "slowest if\nit alone"),
        (*_with_rest(rows, top, summed=3), ("all", "", "", other.by_options_ms, None)),
        (remark,) if unfit else (),
    )


def _above(value: float, other: float) -> str:
    """Return as text by how many percent `value` exceeds `other`, which may be 0."""
    return f"{100 * (value / other - 1):.3g} % above" if other else "above"


def _ms(value: float) -> str:
    return f"{value:.4g} ms"


def _signed(value: float) -> str:
    return f"{_ms(abs(value))} {'less' if value >= 0 else 'more'}"


def _rounded(value: float) -> float:
    """Convert bytes to GiB, rounded to about 1 MiB, for a column of a table."""
    return round(value / 2**30, 3)


def _gib(value: float) -> str:
    return f"{value / 2**30:,.4g}"
