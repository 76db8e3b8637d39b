"""The answers on a report's first screen: what was gained, how certain it is, what to do next."""

from collections.abc import Iterator, Sequence

from harness.measuring.timing.verdict import CONFIDENCE
from reports.core.formatting import factor, gap, plural, quantity
from reports.core.frames import Results
from reports.family.data import FamilyView, Row, rows_of
from reports.family.overview import overview
from reports.family.shortfalls import goals_in_a_line
from reports.report.findings import file_findings
from reports.report.gains import is_better
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
        "What was gained?": _gained(table),
        "Can I trust it?": certain,
        "What do I do now?": _next_steps(found, table),
    }
    return [(question, " ".join(filter(None, sentences))) for question, sentences in said.items()]


def _gained(table: Sequence[Row]) -> Iterator[str]:
    faster = [row for row in table if row["decision"] == "same" and row["times_as_fast"] > 1]
    better = [row for row in table if is_better(row)]
    if faster:
        least, most = (factor(end(row["times_as_fast"] for row in faster)) for end in (min, max))
        span = least if len(faster) == 1 else f"{least} to {most}"
        yield f"Our planners make the same decisions as today's releases, {span} as fast."
    for row in better[:1]:
        ours, today = (quantity(row[f"quality_{each}"], row["unit"]) for each in ("ours", "today"))
        yield (
            f"They also find better decisions. For {row['system']}, `{row['quality']}` "
            f"({row['meaning'].rstrip('.')}) is {ours} instead of {today}, and {_optimal(row)}."
        )
    if not faster and not better:
        yield "Nothing of ours is compared with a release of today in these results."


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
        return f"All {same} decisions that must equal another variant's do."
    return (
        f"{different} of {plural(int(same + different), 'decision')} that must equal another "
        "variant's differ; their times are not compared."
    )


def _intervals(results: Results, table: Sequence[Row]) -> str:
    compared = results.cells[results.cells["ratio"].notna()]
    if compared.empty:
        return ""
    settled = int((compared["outcome"] != "inconclusive").sum())
    text = (
        f"{settled} of {plural(len(compared), 'ratio')} of CPU times have a clear verdict by a "
        f"{100 * CONFIDENCE:.0f} % interval."
    )
    if any(row["basis"] != "measured" for row in table):
        text += " Ratios marked ≥ are not measured, because today's release was stopped."
    return text


def _next_steps(found: Sequence[FamilyView], table: Sequence[Row]) -> Iterator[str]:
    gained = [row for row in table if row["times_as_fast"] > 1 or is_better(row)]
    yield from dict.fromkeys(row["next_step"] for row in gained)
    yield f"Compare on a problem of your own: `shardbench compare {found[0].name} -w WORKLOAD`."
