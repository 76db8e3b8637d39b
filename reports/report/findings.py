"""Sentences on results: the answers of a report's first screen, and the findings on a family."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.measuring.statements import Reading, gap_of
from harness.measuring.timing.verdict import CONFIDENCE
from harness.model.cell import Cell
from reports.core.formatting import (
    count,
    factor,
    gap,
    listing,
    names,
    plural,
    quantity,
)
from reports.core.page import Finding
from reports.family.data import FamilyView
from reports.statements import System, reading_text

_SHORTFALLS = {
    "different decision": "made another decision than the one required, so their times are not "
    "compared",
    "failed": "failed",
    "over budget": "were stopped at their time limit",
    "inconclusive": "stayed inconclusive: the interval contains a limit of the noise floor",
    "not installed": "were not measured, because something is not installed",
}


def answers(
    here: Sequence[System],
    recorded: Mapping[str, System],
    cells: Sequence[Cell],
    goals: Sequence[Reading],
    notes: Iterable[str],
) -> list[tuple[str, str]]:
    """Return three questions of a reader who has never seen the page, with the answers.

    `here` is what the cells say of each system, `recorded` what the record says by the system's
    name. `notes` are sentences on the results as a whole.
    """
    gained = [row for row in here if recorded.get(row.name, row).times.is_gain or row.times.is_gain]
    steps = dict.fromkeys(filter(None, (row.statement.next_step for row in gained)))
    family = cells[0].family if cells else "FAMILY"
    own = f"A problem of your own: `shardbench compare {family} -w WORKLOAD -t TOPOLOGY -n GPUS`."
    answered = {
        "What was gained?": _gained(here, recorded),
        "Can I trust it?": [*_certainty(cells), *goals_in_a_line(goals), *notes],
        "What do I do now?": [*steps, own],
    }
    return [(question, " ".join(sentences)) for question, sentences in answered.items()]


def _gained(here: Sequence[System], recorded: Mapping[str, System]) -> Iterator[str]:
    # A bound on the speed-up is no gain that could be named beside measured ones.
    faster = [
        row.times
        for row in here
        if row.times.is_gain and row.times.decision == "same"
        if row.times.figure and not row.times.figure.sign
    ]
    better = [row.better for row in here if row.better and row.better.is_gain]
    if faster:
        values = [row.value for row in faster]
        ends = dict.fromkeys(factor(end) for end in (min(values), max(values)))
        yield f"Same decision in less time: {' to '.join(ends)} as fast."
        yield f"For {faster[0].statement.name}, {_speedup(faster[0])}"
    for reading in better[:1]:
        yield f"Better decision: for {reading.statement.name}, {_improvement(reading)}"
    if not faster and not better:
        yield "No variant was measured to be faster or better than the one it is compared with."
    rest = [recorded[row.name] for row in here if row.times.figure is None and row.name in recorded]
    if shown := [f"{row.name} {factor(row.times.value)}" for row in rest if row.times.figure]:
        yield f"Not measured here, but recorded: {listing(shown, most=len(shown))}."


def _speedup(reading: Reading) -> str:
    """Say how many times as fast a variant is, and whether it decides the same."""
    figure, ours, today = reading.figure, f"`{reading.pair.after}`", f"`{reading.pair.before}`"
    assert figure
    if reading.statement.before_is:
        today += f" ({reading.statement.before_is})"
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
    values = [quantity(cell.quality[name], unit) for cell in (after, before)]
    return (
        f"`{reading.pair.after}` reaches `{name}` of {values[0]} instead of {values[1]} with "
        f"`{reading.pair.before}`, {gap(gap_of(after))} from the proven bound."
    )


def _certainty(cells: Sequence[Cell]) -> Iterator[str]:
    decisions = Counter(cell.decision for cell in cells)
    if checks := decisions["same"] + decisions["different"]:
        yield (
            f"{decisions['same']} of {plural(checks, 'check')} passed that a variant makes the "
            "decision that it must; times are compared only there."
        )
    compared = [cell for cell in cells if cell.ratio and cell.decision != "different"]
    if compared:
        settled = sum(cell.verdict not in (None, "inconclusive") for cell in compared)
        yield (
            f"A {100 * CONFIDENCE:.0f} % interval settles {settled} of "
            f"{plural(len(compared), 'comparison')} of times as faster, slower or the same."
        )


def goals_in_a_line(goals: Sequence[Reading]) -> Iterator[str]:
    """Yield a sentence on goals, if there are any: how many are met, and which are not."""
    if goals:
        others = [f'"{g.statement.name}" ({g.outcome})' for g in goals if g.outcome != "met"]
        unmet = f"; not {listing(others)}" if others else ""
        yield f"{len(goals) - len(others)} of {plural(len(goals), 'goal')} are met{unmet}."


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
    findings += (Finding("goals", sentence) for sentence in goals_in_a_line(goals))
    return [*findings, *repetition(family.records), *shortfalls(family.records)]


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
    for outcome, sentence in _SHORTFALLS.items():
        if those := [cell for cell in cells if cell.outcome == outcome]:
            variants = names(dict.fromkeys(cell.variant for cell in those))
            of = f"{len(those)} of {plural(len(cells), 'cell')} {sentence}"
            yield Finding(outcome, f"{of}: of {variants}.")
