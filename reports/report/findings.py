"""Sentences on results: how certain they are, and the findings on a family."""

from collections import Counter
from collections.abc import Iterator, Sequence

from harness.measuring.statements import Reading, gap_of
from harness.measuring.timing.verdict import CONFIDENCE
from harness.model.cell import Cell
from reports.core.formatting import count, factor, gap, listing, names, plural, quantity
from reports.core.page import Finding
from reports.family.data import FamilyView
from reports.statements import System, reading_text

# What cells of an outcome did, and why, in the order of importance.
_SHORTFALLS = {
    "different decision": ("made another decision than the required one", "They are not timed."),
    "failed": ("failed", ""),
    "over budget": ("were stopped at their time limit", ""),
    "inconclusive": ("stayed inconclusive", "The interval has a limit of the noise floor in it."),
    "not installed": ("were not measured", "Something is not installed."),
}


def certainty(cells: Sequence[Cell], goals: Sequence[Reading]) -> Iterator[str]:
    """Yield sentences on the checks of decisions, the comparisons of times, and the goals."""
    decisions = Counter(cell.decision for cell in cells)
    if checks := decisions["same"] + decisions["different"]:
        yield (
            f"{decisions['same']} of {plural(checks, 'check')} passed that a variant makes the "
            "required decision. Times are compared only there."
        )
    compared = [cell for cell in cells if cell.ratio and cell.decision != "different"]
    if compared:
        settled = sum(cell.verdict not in (None, "inconclusive") for cell in compared)
        yield (
            f"A {100 * CONFIDENCE:.0f} % interval settles {settled} of "
            f"{plural(len(compared), 'comparison')} of times."
        )
    yield from _goals(goals)


def _goals(goals: Sequence[Reading]) -> Iterator[str]:
    outcomes = Counter(goal.outcome for goal in goals)
    if goals:
        others = [f"{n} {outcome}" for outcome, n in outcomes.items() if outcome != "met"]
        unmet = f", {listing(others)}" if others else ""
        yield f"{outcomes['met']} of {plural(len(goals), 'goal')} are met{unmet}."


def family_findings(
    family: FamilyView, here: Sequence[System], goals: Sequence[Reading]
) -> list[Finding]:
    """Return a family's findings: gains, goals, repeated work, and what could not be compared."""
    findings = []
    for row in here:
        if row.times.figure:
            where = f"On `{row.times.pair.problem}`: {reading_text(row.times)}."
            findings.append(Finding("gain", _speedup(row.times), where))
        if row.better and row.better.is_gain:
            where = f"On `{row.better.pair.problem}`."
            findings.append(Finding("better decision", _improvement(row.better), where))
    if not findings:
        nothing = f"Nothing of `{family.name}` could be compared with `{family.reference}`."
        findings.append(Finding("gain", nothing))
    findings += (Finding("goals", sentence) for sentence in _goals(goals))
    return [*findings, *repetition(family.records), *shortfalls(family.records)]


def _speedup(reading: Reading) -> str:
    """Say how many times as fast a variant is, and whether it decides the same."""
    figure, ours, today = reading.figure, f"`{reading.pair.after}`", f"`{reading.pair.before}`"
    assert figure
    if figure.low <= 1 <= figure.high:
        return f"{ours} cannot be distinguished from {today} in time."
    decides = {"same": ", with the same decision", "own": ", with a decision of its own"}
    decided = decides.get(reading.decision, "")
    return f"{ours} is {figure.sign}{factor(figure.value)} as fast as {today}{decided}."


def _improvement(reading: Reading) -> str:
    """Say how much better a decision is than another one, and how near to the proven bound."""
    name, after, before = reading.statement.measure, reading.after, reading.before
    assert after
    assert before
    unit = next((quality.unit for quality in after.qualities if quality.name == name), "")
    best, today = (quantity(cell.quality[name], unit) for cell in (after, before))
    return (
        f"`{reading.pair.after}` reaches `{name}` of {best}, `{reading.pair.before}` {today}. "
        f"The better one is {gap(gap_of(after))} from the proven bound."
    )


def repetition(cells: Sequence[Cell]) -> Iterator[Finding]:
    """Yield a finding per counter that exceeds its sufficient count: the cell with most of it."""
    most: dict[str, Cell] = {}
    for cell in cells:
        for name, done in cell.counters.items():
            enough = cell.enough(name)
            is_more = name not in most or done > most[name].counters[name]
            if enough is not None and done > enough and is_more:
                most[name] = cell
    for name, where in most.items():
        largest, least = where.counters[name], where.enough(name) or 0
        yield Finding(
            "repeated work",
            f"`{name}`: {count(largest)} in `{where.variant}`, where {count(least)} would do.",
            f"Counted on `{where.problem}`.",
        )


def shortfalls(cells: Sequence[Cell]) -> Iterator[Finding]:
    """Yield a finding per outcome of cells that cannot be compared, with their variants."""
    for outcome, (did, why) in _SHORTFALLS.items():
        if those := [cell for cell in cells if cell.outcome == outcome]:
            variants = names(dict.fromkeys(cell.variant for cell in those))
            of = f"{len(those)} of {plural(len(cells), 'cell')} {did}: of {variants}."
            yield Finding(outcome, of, why)
