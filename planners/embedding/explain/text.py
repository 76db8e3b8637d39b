"""An explanation of a plan for people: sentences with the figures that matter, and tables."""

from collections.abc import Iterator, Mapping, Sequence

from harness.contract import Section
from planners.embedding.explain.records import (
    Against,
    Alternative,
    BoundExplained,
    BoundTable,
    PlacedShard,
    PlanExplained,
    RankExplained,
    TableExplained,
)

_GIB = 2**30
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
    bound = found.bound.ms
    mean = f", {_above(found.slowest_ms, found.mean_ms)} the mean of {_ms(found.mean_ms)}"
    near = sum(ms >= found.slowest_ms * _NEAR for ms in found.ranks_ms) - 1
    yield (
        f"Rank {found.slowest_rank} is the slowest with {_ms(found.slowest_ms)}{mean}; "
        f"{near or 'none'} of the other {len(found.ranks_ms) - 1} ranks are within 1 % of it."
    )
    above = found.slowest_ms - bound
    if above > bound * _ROUNDING:
        yield (
            f"No plan is proven to need less than {_ms(bound)}; this one is "
            f"{_above(found.slowest_ms, bound)} it. Of the {_ms(above)} between them, "
            f"{_ms(found.mean_ms - bound)} are how far the mean of the ranks is above that, "
            f"and {_ms(found.slowest_ms - found.mean_ms)} how far this rank is above the mean."
        )
    else:
        yield f"No plan is better: none needs less than {_ms(bound)}."
    yield from _bound(found.bound, len(found.ranks_ms))
    for memory in found.memory:
        share = f" ({memory.bytes / memory.usable_bytes:.1%})" if memory.usable_bytes > 0 else ""
        yield (
            f"{memory.kind} is fullest on rank {memory.rank}: {_gib(memory.bytes)} of "
            f"{_gib(memory.usable_bytes)} GiB{share.replace('%', ' %')}."
        )
    yield from _best(found)
    if found.against:
        yield from _against(found, found.against)


def _bound(bound: BoundExplained, ranks: int) -> Iterator[str]:
    proven = bound.proven
    work = f"all work, evenly over {ranks} ranks, is {_ms(proven['work'])} a rank"
    if bound.binding == "table":
        yield (
            f"What bounds the result is {bound.table} by itself: however it is cut, one of its "
            f"shards costs {_ms(proven['table'])} or more. Apart from that, {work}."
        )
    elif bound.binding == "work":
        yield (
            f"What bounds the result is the work: with each of {len(bound.tables)} tables as its "
            f"cheapest option, {work}. Memory does not bind."
        )
    elif bound.binding == "shards":
        yield (
            f"What bounds the result is the work in shards that are small enough: {work} with the "
            "cheapest option of each table, but some of these have shards that cost more than "
            "that. Memory does not bind."
        )
    elif bound.binding == "memory":
        yield (
            "What bounds the result is memory: as if all ranks had one memory, the tables cost "
            f"{_ms(bound.ms)} a rank at least; without looking at memory {_ms(proven['shards'])}."
        )
    else:
        yield (
            "What bounds the result is that an option is taken whole, and that each host has its "
            f"own memory and its own time: so {_ms(bound.ms)} a rank, {_ms(proven['memory'])} as "
            f"if all ranks were one, and {_ms(proven['shards'])} without looking at memory."
        )
    for kind, needed in bound.needed_bytes.items():
        if needed > bound.usable_bytes[kind]:
            yield (
                f"The cheapest options take {_gib(needed)} GiB of {kind}, where "
                f"{_gib(bound.usable_bytes[kind])} are usable."
            )
    moved = [each for each in bound.tables if each.with_memory_ms > each.ms * (1 + _ROUNDING)]
    if moved:
        worst = max(moved, key=lambda each: each.with_memory_ms - each.ms)
        yield (
            f"In the relaxed plan behind that bound, {len(moved)} of {len(bound.tables)} tables "
            "cost more than as their cheapest option, most of all "
            f"{worst.table}: {_ms(worst.with_memory_ms)} on all ranks together as "
            f"{worst.with_memory}, where {worst.option} costs {_ms(worst.ms)}."
        )
    dear = _dear(bound)
    if dear:
        yield (
            f"Here {len(dear)} of {len(bound.tables)} tables cost more than in the relaxed plan "
            f"behind that bound, most of all {dear[0].table}: {_ms(dear[0].placed_ms)} on all "
            f"ranks together as {dear[0].placed}, where {dear[0].with_memory} costs "
            f"{_ms(dear[0].with_memory_ms)}."
        )


def _dear(bound: BoundExplained) -> list[BoundTable]:
    """Return the tables that cost more than in the relaxed plan, the worst first."""
    return [each for each in bound.tables if each.excess_ms > each.placed_ms * _ROUNDING]


def _best(found: PlanExplained) -> Iterator[str]:
    best = min(found.tables, key=lambda each: each.best.slowest_rank_ms or 0.0, default=None)
    if best is None:
        return
    option = best.best
    assert option.slowest_rank_ms is not None
    count = len(found.tables)
    looked_at = f"the {count} dearest tables" if count > 1 else "the dearest table"
    one_of = f"one of {looked_at}" if count > 1 else looked_at
    if option.present:
        yield (
            f"Placing {one_of} of rank {found.rank.rank} otherwise, with all others left "
            "where they are, does not make the slowest rank faster."
        )
        return
    yield (
        f"Of all that {looked_at} of rank {found.rank.rank} could be instead, {best.table} as "
        f"{option.option} helps most: with all others left where they are, the slowest rank would "
        f"be rank {option.slowest_rank} with {_ms(option.slowest_rank_ms)}."
    )


def _against(found: PlanExplained, other: Against) -> Iterator[str]:
    difference = found.slowest_ms - other.slowest_ms
    if not other.tables:
        yield f"{other.variant} decides the same."
        return
    what = "less" if difference >= 0 else "more"
    yield (
        f"The slowest rank of {other.variant} costs {_ms(other.slowest_ms)}, "
        f"{_ms(abs(difference))} {what}: {_signed(other.by_options_ms)} by the options, as the "
        f"mean of the ranks says, and {_signed(other.by_balance_ms)} by how far the slowest rank "
        "is from the mean."
    )
    yield (
        f"{_tables(other.other_options)} another option there, and {_tables(other.other_ranks)} "
        "the same one on other ranks."
    )


def _tables(count: int) -> str:
    return f"{count} tables have" if count != 1 else "1 table has"


def sections(found: PlanExplained, top: int) -> Iterator[Section]:
    """Show the rank's shards, what each of its dearest tables could be instead, and the rest."""
    yield from _rank(found.rank, max(top, _MOST_SHARDS))
    told: Mapping[str, str] = {}
    for table in found.tables:
        yield _table(table, found.rank.rank, table.left_out if table.left_out != told else {})
        told = table.left_out
    yield from _excess(found.bound, top)
    yield Section(
        "What is proven, argument by argument",
        ("argument", "ms", "what it looks at"),
        tuple((name, ms, found.bound.meaning[name]) for name, ms in found.bound.proven.items()),
    )
    if found.against and found.against.tables:
        yield _differences(found.against, top)


def _rank(rank: RankExplained, most: int) -> Iterator[Section]:
    shown = rank.shards[:most]
    rest = rank.shards[most:]
    left = (f"{len(rest)} more shards", "", "", sum(s.ms for s in rest), "", None, None)
    yield Section(
        f"On rank {rank.rank}",
        ("table", "rows x dim", "option", "ms", "share", "HBM\nGiB", "DDR\nGiB"),
        (
            *(
                (
                    shard.table,
                    f"{shard.size[0]:,} x {shard.size[1]}",
                    f"{shard.sharding_type} {shard.compute_kernel}",
                    shard.ms,
                    f"{shard.share:.0%}".replace("%", " %"),
                    _rounded(shard.hbm_bytes),
                    _rounded(shard.ddr_bytes),
                )
                for shard in shown
            ),
            *((left,) if rest else ()),
            ("all", "", "", rank.ms, "", _rounded(rank.hbm_bytes), _rounded(rank.ddr_bytes)),
        ),
    )
    yield Section(
        "The same in milliseconds of each kind of work",
        ("table", *(_TITLES[name] for name in rank.perf_ms)),
        (
            *map(_placed, shown),
            ("all", *rank.perf_ms.values()),
        ),
    )


def _placed(shard: PlacedShard) -> tuple[str | float | None, ...]:
    return (shard.table, *shard.perf_ms.values())


def _table(table: TableExplained, rank: int, left_out: Mapping[str, str]) -> Section:
    possible = [each for each in table.alternatives if each.slowest_rank_ms is not None]
    return Section(
        f"What {table.table} could be, {_ms(table.rank_ms)} of rank {rank}",
        (
            "option",
            "ms",
            "dearest\nshard",
            "HBM\nGiB",
            "DDR\nGiB",
            f"rank {rank}\nthen",
            "slowest\nthen",
        ),
        tuple(_alternative(each) for each in possible),
        tuple(_remarks(table, left_out)),
    )


def _alternative(each: Alternative) -> tuple[str | float | None, ...]:
    return (
        each.option + (" (now)" if each.present else ""),
        each.ms,
        each.largest_shard_ms,
        _rounded(each.hbm_bytes),
        _rounded(each.ddr_bytes),
        each.this_rank_ms,
        each.slowest_rank_ms,
    )


def _remarks(table: TableExplained, left_out: Mapping[str, str]) -> Iterator[str]:
    lacking: dict[tuple[str, int], list[str]] = {}
    others: dict[str, list[str]] = {}
    for each in table.alternatives:
        if each.lacking:
            needs = f"{each.option} ({_gib(each.needed_bytes)} GiB)"
            lacking.setdefault((each.lacking, each.free_bytes), []).append(needs)
        elif each.why_not:
            others.setdefault(each.why_not, []).append(each.option)
    for (kind, free), options in lacking.items():
        yield (
            f"Not possible, by what a shard needs of {kind} where at most {_gib(free)} GiB are "
            f"free on the ranks it may go to: {', '.join(options)}."
        )
    for why_not, options in others.items():
        yield f"Not possible: {', '.join(options)}: {why_not}."
    grouped: dict[str, list[str]] = {}
    for name, why in left_out.items():
        grouped.setdefault(why, []).append(name)
    for why, names in grouped.items():
        yield f"Left out, since {why}: {', '.join(names)}."


def _excess(bound: BoundExplained, top: int) -> Iterator[Section]:
    dear = _dear(bound)
    if not dear:
        return
    rest = dear[top:]
    more = (f"{len(rest)} more", "", "", None, None, sum(each.excess_ms for each in rest))
    yield Section(
        "What costs more here than in the relaxed plan behind the bound",
        ("table", "here", "relaxed", "ms\nhere", "ms\nrelaxed", "more"),
        (
            *(
                (
                    each.table,
                    each.placed,
                    each.with_memory,
                    each.placed_ms,
                    each.with_memory_ms,
                    each.excess_ms,
                )
                for each in dear[:top]
            ),
            *((more,) if rest else ()),
        ),
        ("These are milliseconds on all ranks together.",),
    )


def _differences(other: Against, top: int) -> Section:
    shown, rest = other.tables[:top], other.tables[top:]
    rows: list[Sequence[str | float | None]] = [
        (
            each.table,
            each.here,
            each.there if each.here != each.there else "the same, on other ranks",
            each.mean_ms,
            each.alone_ms if each.fits else None,
        )
        for each in shown
    ]
    if rest:
        rows.append((f"{len(rest)} more", "", "", sum(each.mean_ms for each in rest), None))
    rows.append(("all", "", "", other.by_options_ms, None))
    unfit = [each.table for each in shown if not each.fits]
    remark = f"By itself it does not fit into the memory that is left: {', '.join(unfit)}."
    return Section(
        f"What {other.variant} places otherwise",
        ("table", "here", "there", "adds to\nthe mean", "slowest if\nit alone"),
        tuple(tuple(row) for row in rows),
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
    return round(value / _GIB, 3)


def _gib(value: float) -> str:
    return f"{value / _GIB:,.4g}"
