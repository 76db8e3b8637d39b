"""The answers on a report's first screen: gains, certainty, next steps."""

from collections.abc import Iterator, Sequence

from harness.measuring.timing.verdict import CONFIDENCE
from reports.core.formatting import MISSING, factor, gap, plural, quantity, seconds
from reports.core.frames import Results
from reports.family.data import FamilyView, Row, rows_of
from reports.family.overview import overview
from reports.family.shortfalls import goals_in_a_line
from reports.report.findings import file_findings, is_better
from reports.report.recorded import Recorded


def answers(
    found: Sequence[FamilyView],
    results: Results,
    recorded: Recorded,
) -> list[tuple[str, str]]:
    """Return three questions of a reader who has never seen the page, with the answers."""
    table = rows_of(overview(found))
    certain = [
        _sameness(results),
        _intervals(results, table),
        recorded.agreement(results),
        goals_in_a_line(found),
        *(finding.sentence for finding in file_findings(results)),
    ]
    said = {
        "What was gained?": _gained(found, table),
        "Can I trust it?": certain,
        "What do I do now?": _next_steps(found, table),
    }
    return [(question, " ".join(filter(None, sentences))) for question, sentences in said.items()]


def _gained(found: Sequence[FamilyView], table: Sequence[Row]) -> Iterator[str]:
    # Only where the whole interval says so; a projection from a stopped call has no interval.
    faster = [
        row
        for row in table
        if row["decision"] == "same" and row["times_as_fast"] > 1 and not row["low"] <= 1
    ]
    better = [row for row in table if is_better(row)]
    if faster:
        least, most = (factor(end(row["times_as_fast"] for row in faster)) for end in (min, max))
        span = least if len(faster) == 1 else f"{least} to {most}"
        other = "today's releases" if faster[0]["declared"] else "the variants compared with"
        yield f"Same decision in less planning time: {span} as fast as {other}."
    for row in faster[:1]:
        ours, today = (_spent(found, row, row["problem"], row[side]) for side in ("ours", "today"))
        instead = f" instead of {today}" if today != MISSING else ""
        yield f"For {row['system']}, `{row['ours']}` takes {ours}{instead}."
    for row in better[:1]:
        ours, today = (quantity(row[f"quality_{side}"], row["unit"]) for side in ("ours", "today"))
        yield (
            f"Better decision: for {row['system']}, `{row['best']}` takes "
            f"{_spent(found, row, row['rated_on'], row['best'])} and reaches `{row['quality']}` "
            f"({row['meaning'].rstrip('.')}) of {ours} instead of {today} with "
            f"`{row['rated']}`; {_optimal(row)}."
        )
    if not faster and not better:
        yield "No variant is faster than the one that it is compared with, at the same decision."


def _spent(found: Sequence[FamilyView], row: Row, problem: str, variant: str) -> str:
    (family,) = (family for family in found if family.name == row["family"])
    return seconds(family.on(problem)[variant]["cpu_s"], trim=True)


def _optimal(row: Row) -> str:
    if gap(row["gap_ours"]) == gap(0.0):
        return "no decision can be better, which is proven"
    return f"no decision can be more than {gap(row['gap_ours'])} better, which is proven"


def _sameness(results: Results) -> str:
    decisions = results.cells["decision"]
    same, different = ((decisions == name).sum() for name in ("same", "different"))
    if not same + different:
        return ""
    if not different:
        return f"All {same} checks passed that a variant makes the decision that it must."
    checks = plural(int(same + different), "check")
    return (
        f"{different} of {checks} failed that a variant makes the decision that it must; its time "
        "is not compared there."
    )


def _intervals(results: Results, table: Sequence[Row]) -> str:
    compared = results.cells[results.cells["ratio"].notna()]
    if compared.empty:
        return ""
    settled = int((compared["outcome"] != "inconclusive").sum())
    text = (
        f"A {100 * CONFIDENCE:.0f} % interval settles {settled} of "
        f"{plural(len(compared), 'comparison')} of times as faster, slower or the same."
    )
    if any(row["basis"] != "measured" for row in table):
        text += " ≥ marks factors that are not measured: the other variant reached its time limit."
    return text


def _next_steps(found: Sequence[FamilyView], table: Sequence[Row]) -> Iterator[str]:
    gained = [row for row in table if row["times_as_fast"] > 1 or is_better(row)]
    yield from dict.fromkeys(row["next_step"] for row in gained)
    command = f"shardbench compare {found[0].name} -w WORKLOAD -t TOPOLOGY -n GPUS"
    yield f"A problem of your own: `{command}`."
