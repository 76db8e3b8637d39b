"""An explanation of a plan for people: sentences with the figures that matter, and tables."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from harness.contract import Section
from planners.embedding.explain.records import (
    Alternative,
    BoundExplained,
    BoundTable,
    PlanDifference,
    PlanExplained,
    RankExplained,
    TableExplained,
)

Row = tuple[str | float | None, ...]

_TITLES = {
    "fwd_compute": "forward\ncompute",
    "fwd_comms": "forward\ncomms",
    "bwd_compute": "backward\ncompute",
    "bwd_comms": "backward\ncomms",
    "prefetch_compute": "prefetch",
}
_MOST_SHARDS = 12
_NEAR = 0.99
# Less than this share of a figure is rounding.
_ROUNDING = 1e-9


def sentences(found: PlanExplained) -> Iterator[str]:
    """Say what the plan costs, what no plan can be without, and what would help."""
    bound, slowest, mean = found.bound.ms, found.slowest_ms, found.mean_ms
    near = sum(ms >= slowest * _NEAR for ms in found.ranks_ms) - 1
    yield (
        f"Rank {found.slowest_rank} is the slowest with {_ms(slowest)}, {_above(slowest, mean)} "
        f"the mean of {_ms(mean)}; {near or 'none'} of the other {len(found.ranks_ms) - 1} ranks "
        "are within 1 % of it."
    )
    if slowest - bound > bound * _ROUNDING:
        yield (
            f"No plan is proven to need less than {_ms(bound)}; this one is "
            f"{_above(slowest, bound)} it. Of the {_ms(slowest - bound)} between them, "
            f"{_ms(mean - bound)} are how far the mean of the ranks is above that, and "
            f"{_ms(slowest - mean)} how far this rank is above the mean."
        )
    else:
        yield f"Proven best: no plan needs less than {_ms(bound)}."
    yield _binding(found.bound, len(found.ranks_ms))
    yield from _bound(found.bound)
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


def _binding(bound: BoundExplained, ranks: int) -> str:
    """Say what bounds the result."""
    proven = bound.proven
    work = f"all work, evenly over {ranks} ranks, is {_ms(proven['work'])} a rank"
    if bound.binding == "table":
        text = (
            f"{bound.table} by itself: however it is cut, one of its shards costs "
            f"{_ms(proven['table'])} or more. Apart from that, {work}."
        )
    elif bound.binding == "work":
        text = (
            f"the work: with each of {len(bound.tables)} tables as its cheapest option, {work}. "
            "Memory does not bind."
        )
    elif bound.binding == "shards":
        text = (
            f"the work in shards that are small enough: {work} with the cheapest option of each "
            "table, but some of these have shards that cost more than that. Memory does not bind."
        )
    elif bound.binding == "memory":
        text = (
            f"memory: as if all ranks had one memory, the tables cost {_ms(bound.ms)} a rank at "
            f"least; without looking at memory {_ms(proven['shards'])}."
        )
    elif bound.binding == "ranks":
        text = (
            "that each shard is on one rank, with its own memory and its own time: so "
            f"{_ms(bound.ms)} whatever is tried, {_ms(proven['memory'])} a rank as if all ranks "
            f"were one, and {_ms(proven['shards'])} without looking at memory."
        )
    else:
        text = (
            "that an option is taken whole, and that each host has its own memory and its own "
            f"time: so {_ms(bound.ms)} a rank, {_ms(proven['memory'])} as if all ranks were one, "
            f"and {_ms(proven['shards'])} without looking at memory."
        )
    return f"What bounds the result is {text}"


def _bound(bound: BoundExplained) -> Iterator[str]:
    for kind, needed in bound.needed_bytes.items():
        if needed > bound.usable_bytes[kind]:
            yield (
                f"The cheapest options take {_gib(needed)} GiB of {kind}, where "
                f"{_gib(bound.usable_bytes[kind])} are usable."
            )
    all_tables = f"{len(bound.tables)} tables"
    moved = [each for each in bound.tables if each.with_memory_ms > each.ms * (1 + _ROUNDING)]
    if moved:
        worst = max(moved, key=lambda each: each.with_memory_ms - each.ms)
        yield (
            f"In the relaxed plan behind that bound, {len(moved)} of {all_tables} cost more than "
            f"as their cheapest option, most of all {worst.table}: {_ms(worst.with_memory_ms)} on "
            f"all ranks together as {worst.with_memory}, where {worst.option} costs "
            f"{_ms(worst.ms)}."
        )
    dear = _dear(bound)
    if dear:
        worst = dear[0]
        yield (
            f"Here {len(dear)} of {all_tables} cost more than in the relaxed plan behind that "
            f"bound, most of all {worst.table}: {_ms(worst.placed_ms)} on all ranks together as "
            f"{worst.placed}, where {worst.with_memory} costs {_ms(worst.with_memory_ms)}."
        )


def _dear(bound: BoundExplained) -> list[BoundTable]:
    """Return the tables that cost more than in the relaxed plan, the worst first."""
    return [each for each in bound.tables if each.excess_ms > each.placed_ms * _ROUNDING]


def _best(found: PlanExplained) -> str:
    table = min(found.tables, key=lambda each: each.best.slowest_rank_ms or 0.0)
    option, count = table.best, len(found.tables)
    assert option.slowest_rank_ms is not None
    tables = f"the {count} dearest tables" if count > 1 else "the dearest table"
    if option.present:
        return (
            f"Placing {'one of ' * (count > 1)}{tables} of rank {found.rank.rank} otherwise, with "
            "all others left where they are, does not make the slowest rank faster."
        )
    return (
        f"Of all that {tables} of rank {found.rank.rank} could be instead, {table.table} as "
        f"{option.option} helps most: with all others left where they are, the slowest rank would "
        f"be rank {option.slowest_rank} with {_ms(option.slowest_rank_ms)}."
    )


def _against(found: PlanExplained, other: PlanDifference) -> Iterator[str]:
    if not other.tables:
        yield f"{other.variant} decides the same."
        return
    yield (
        f"The slowest rank of {other.variant} costs {_ms(other.slowest_ms)}, "
        f"{_signed(found.slowest_ms - other.slowest_ms)}: {_signed(other.by_options_ms)} by the "
        f"options, as the mean of the ranks says, and {_signed(other.by_balance_ms)} by how far "
        "the slowest rank is from the mean."
    )
    yield (
        f"{_tables_have(other.other_options)} another option there, and "
        f"{_tables_have(other.other_ranks)} the same one on other ranks."
    )


def _tables_have(count: int) -> str:
    return f"{count} tables have" if count != 1 else "1 table has"


def sections(found: PlanExplained, top: int) -> Iterator[Section]:
    """Show the rank's shards, what each of its dearest tables could be instead, and the rest."""
    yield from _rank(found.rank, max(top, _MOST_SHARDS))
    shown: Mapping[str, str] = {}
    for table in found.tables:
        yield _table(table, found.rank.rank, table.left_out if table.left_out != shown else {})
        shown = table.left_out
    dear: list[Row] = [
        (e.table, e.placed, e.with_memory, e.placed_ms, e.with_memory_ms, e.excess_ms)
        for e in _dear(found.bound)
    ]
    if dear:
        yield Section(
            "What costs more here than in the relaxed plan behind the bound",
            ("table", "here", "relaxed", "ms\nhere", "ms\nrelaxed", "more"),
            _with_rest(dear, top, summed=5),
            ("These are milliseconds on all ranks together.",),
        )
    yield Section(
        "What is proven, argument by argument",
        ("argument", "ms", "what it looks at"),
        tuple((name, ms, found.bound.meaning[name]) for name, ms in found.bound.proven.items()),
    )
    if found.against and found.against.tables:
        yield _differences(found.against, top)


def _with_rest(rows: Sequence[Row], most: int, summed: int, rest: str = "more") -> tuple[Row, ...]:
    """Return the first rows, and one for all others with the sum of one column."""
    others = rows[most:]
    if not others:
        return tuple(rows)
    last: list[str | float | None] = ["" if isinstance(cell, str) else None for cell in others[0]]
    last[0] = f"{len(others)} {rest}"
    last[summed] = sum(float(row[summed] or 0.0) for row in others)
    return (*rows[:most], tuple(last))


def _rank(rank: RankExplained, most: int) -> Iterator[Section]:
    shards: list[Row] = [
        (
            each.table,
            f"{each.size[0]:,} x {each.size[1]}",
            f"{each.sharding_type} {each.compute_kernel}",
            each.ms,
            f"{100 * each.share:.0f} %",
            _rounded(each.hbm_bytes),
            _rounded(each.ddr_bytes),
        )
        for each in rank.shards
    ]
    whole: Row = ("all", "", "", rank.ms, "", _rounded(rank.hbm_bytes), _rounded(rank.ddr_bytes))
    yield Section(
        f"On rank {rank.rank}",
        ("table", "rows x dim", "option", "ms", "share", "HBM\nGiB", "DDR\nGiB"),
        (*_with_rest(shards, most, summed=3, rest="more shards"), whole),
    )
    kinds: list[Row] = [(each.table, *each.perf_ms.values()) for each in rank.shards[:most]]
    yield Section(
        "The same in milliseconds of each kind of work",
        ("table", *(_TITLES[name] for name in rank.perf_ms)),
        (*kinds, ("all", *rank.perf_ms.values())),
    )


def _table(table: TableExplained, rank: int, left_out: Mapping[str, str]) -> Section:
    gib = "HBM\nGiB", "DDR\nGiB"
    return Section(
        f"What {table.table} could be, {_ms(table.rank_ms)} of rank {rank}",
        ("option", "ms", "dearest\nshard", *gib, f"rank {rank}\nthen", "slowest\nthen"),
        tuple(
            (
                each.option + (" (now)" if each.present else ""),
                each.ms,
                each.largest_shard_ms,
                _rounded(each.hbm_bytes),
                _rounded(each.ddr_bytes),
                each.this_rank_ms,
                each.slowest_rank_ms,
            )
            for each in table.alternatives
            if each.slowest_rank_ms is not None
        ),
        tuple(_remarks(table.alternatives, left_out)),
    )


def _remarks(alternatives: Sequence[Alternative], left_out: Mapping[str, str]) -> Iterator[str]:
    lacking = defaultdict[tuple[str, int], list[str]](list)
    others, reasons = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for each in alternatives:
        if each.lacking:
            needs = f"{each.option} ({_gib(each.needed_bytes)} GiB)"
            lacking[each.lacking, each.free_bytes].append(needs)
        elif each.why_not:
            others[each.why_not].append(each.option)
    for name, why in left_out.items():
        reasons[why].append(name)
    for (kind, free), options in lacking.items():
        yield (
            f"Not possible, by what a shard needs of {kind} where at most {_gib(free)} GiB are "
            f"free on the ranks it may go to: {', '.join(options)}."
        )
    for why_not, options in others.items():
        yield f"Not possible: {', '.join(options)}: {why_not}."
    for why, names in reasons.items():
        yield f"Left out, since {why}: {', '.join(names)}."


def _differences(other: PlanDifference, top: int) -> Section:
    rows: list[Row] = [
        (
            each.table,
            each.here,
            each.there if each.here != each.there else "the same, on other ranks",
            each.mean_ms,
            each.alone_ms if each.fits else None,
        )
        for each in other.tables
    ]
    unfit = [each.table for each in other.tables[:top] if not each.fits]
    remark = f"By itself it does not fit into the memory that is left: {', '.join(unfit)}."
    return Section(
        f"What {other.variant} places otherwise",
        ("table", "here", "there", "adds to\nthe mean", "slowest if\nit alone"),
        (*_with_rest(rows, top, summed=3), ("all", "", "", other.by_options_ms, None)),
        (remark,) if unfit else (),
    )


def _above(value: float, other: float) -> str:
    """Say how far a value is above another one, which may be zero."""
    return f"{100 * (value / other - 1):.3g} % above" if other else "above"


def _ms(value: float) -> str:
    return f"{value:.4g} ms"


def _signed(value: float) -> str:
    return f"{_ms(abs(value))} {'less' if value >= 0 else 'more'}"


def _rounded(value: float) -> float:
    """Return GiB to the nearest MiB or so, which is what there is room for in a table."""
    return round(value / 2**30, 3)


def _gib(value: float) -> str:
    return f"{value / 2**30:,.4g}"
