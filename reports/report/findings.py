"""Sentences on results: the answers of a report's first screen, and the findings on a family."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.measuring.statements import Cells, Reading, gap_of
from harness.measuring.timing.verdict import CONFIDENCE
from harness.model.cell import Cell, Ratio
from reports.core.columns import stopped_at
from reports.core.formatting import (
    count,
    factor,
    factor_with_interval,
    gap,
    listing,
    names,
    percent,
    plural,
    quantity,
)
from reports.core.page import Finding
from reports.family.data import FamilyView
from reports.statements import System, reading_text, time_text

_KINDS = (
    *("gain", "better decision", "record", "goals", "different decisions", "failed"),
    *("repeated work", "over budget", "inconclusive"),
    "not installed",
)
_REASON_LENGTH = 160
_UNMET = ("missed", "inconclusive", "projected to be missed", "projected to be met", "not measured")


def answers(
    here: Sequence[System],
    recorded: Mapping[str, System],
    cells: Sequence[Cell],
    goals: Sequence[Reading],
    notes: Iterable[str],
) -> list[tuple[str, str]]:
    """Return three questions of a reader who has never seen the page, with the answers.

    Args:
        here: what the cells say of each system.
        recorded: what the record says of systems, by name.
        cells: the cells of the results, perhaps none.
        goals: what the cells say of goals.
        notes: sentences on the results as a whole.
    """
    answered = {
        "What was gained?": _gained(here, recorded, bool(cells)),
        "Can I trust it?": [*_certainty(cells, here), *goals_in_a_line(goals), *notes],
        "What do I do now?": _next_steps(here, recorded, cells),
    }
    return [(question, " ".join(sentences)) for question, sentences in answered.items()]


def _gained(
    here: Sequence[System], recorded: Mapping[str, System], is_measured: bool
) -> Iterator[str]:
    faster = [row for row in here if row.times.is_gain and row.times.decision == "same"]
    better = [row.better for row in here if row.better and row.better.is_gain]
    # A bound on the speed-up is no gain that could be named beside measured ones.
    faster = [row for row in faster if row.times.figure and not row.times.figure.sign]
    if faster:
        factors = [row.times.value for row in faster]
        span = " to ".join(dict.fromkeys(factor(end) for end in (min(factors), max(factors))))
        other = "today's releases" if faster[0].statement.claim else "the variants compared with"
        yield f"Same decision in less planning time: {span} as fast as {other}."
        times = faster[0].times
        yield (
            f"For {faster[0].name}, `{times.pair.after}` takes {time_text(times.after)} instead "
            f"of {time_text(times.before)}."
        )
    for reading in better[:1]:
        yield f"Better decision: for {reading.statement.name}, {_improvement(reading)}."
    rest = [recorded[row.name] for row in here if row.times.figure is None and row.name in recorded]
    if shown := [f"{row.name} {factor(row.times.value)}" for row in rest if row.times.figure]:
        yield f"Not measured here, but recorded: {listing(shown, most=len(shown))}."
    elif not is_measured:
        yield "Nothing is measured yet."
    elif not faster and not better:
        yield "No variant is faster than the one that it is compared with, at the same decision."


def _improvement(reading: Reading) -> str:
    """Say how much better a decision is than another one, and how near to the proven bound."""
    name, after, before = reading.statement.measure, reading.after, reading.before
    assert after
    assert before
    (quality,) = (quality for quality in after.qualities if quality.name == name)
    values = [quantity(cell.quality[name], quality.unit) for cell in (after, before)]
    left = gap(gap_of(after))
    proven = "no decision can be better" if left == gap(0.0) else f"{left} from the proven bound"
    return (
        f"`{reading.pair.after}` reaches `{name}` ({quality.meaning.rstrip('.')}) of {values[0]} "
        f"instead of {values[1]} with `{reading.pair.before}`; {proven}"
    )


def _certainty(cells: Sequence[Cell], here: Sequence[System]) -> Iterator[str]:
    decisions = Counter(cell.decision for cell in cells)
    same, different = decisions["same"], decisions["different"]
    if different:
        yield (
            f"{different} of {plural(same + different, 'check')} failed that a variant makes the "
            "decision that it must; its time is not compared there."
        )
    elif same:
        yield f"All {same} checks passed that a variant makes the decision that it must."
    compared = [cell for cell in cells if cell.ratio and cell.decision != "different"]
    if compared:
        settled = sum(cell.verdict not in (None, "inconclusive") for cell in compared)
        yield (
            f"A {100 * CONFIDENCE:.0f} % interval settles {settled} of "
            f"{plural(len(compared), 'comparison')} of times as faster, slower or the same."
        )
    if any(row.times.figure and row.times.figure.sign for row in here):
        yield "≥ marks factors that are not measured: the other variant reached its time limit."


def goals_in_a_line(goals: Sequence[Reading]) -> Iterator[str]:
    """Yield a sentence on goals, if there are any: how many are met, and which are not."""
    if not goals:
        return
    met = sum(goal.outcome == "met" for goal in goals)
    parts = [f"{met} of {plural(len(goals), 'goal')} {'is' if met == 1 else 'are'} met"]
    for outcome in _UNMET:
        unmet = [f'"{goal.statement.name}"' for goal in goals if goal.outcome == outcome]
        parts += [f"{outcome}: {listing(unmet, most=2)}"] * bool(unmet)
    yield "; ".join(parts) + "."


def _next_steps(
    here: Sequence[System], recorded: Mapping[str, System], cells: Sequence[Cell]
) -> Iterator[str]:
    gained = [row for row in here if recorded.get(row.name, row).times.is_gain or row.times.is_gain]
    yield from dict.fromkeys(filter(None, (row.statement.next_step for row in gained)))
    family = cells[0].family if cells else "FAMILY"
    yield f"A problem of your own: `shardbench compare {family} -w WORKLOAD -t TOPOLOGY -n GPUS`."


def family_findings(
    family: FamilyView, here: Sequence[System], others: Iterable[Finding] = ()
) -> list[Finding]:
    """Return a family's findings and `others` on it: the first of each kind, then the rest."""
    goals = (Finding("goals", sentence) for sentence in goals_in_a_line(family.goals))
    findings = [
        *_gains(family, here),
        *goals,
        *repetition(family.records),
        *shortfalls(family.records),
        *others,
    ]
    findings.sort(key=lambda finding: _KINDS.index(finding.kind))
    firsts = {finding.kind: finding for finding in reversed(findings)}
    return sorted(findings, key=lambda finding: finding is not firsts[finding.kind])


def _gains(family: FamilyView, here: Sequence[System]) -> Iterator[Finding]:
    """Yield findings that compare ours with today's release: times, then better decisions.

    Without any, yield the numbers of cells by outcome.
    """
    nothing = True
    for row in here:
        times = row.times
        if times.figure:
            nothing = False
            yield _speedup(times)
        if row.better and row.better.is_gain:
            nothing = False
            where = f"On `{row.better.pair.problem}`."
            yield Finding("better decision", f"{_improvement(row.better)}.", where)
    if nothing:
        states = Counter(cell.status for cell in family.records)
        yield Finding(
            "gain",
            f"Nothing of `{family.name}` could be compared with `{family.reference}`.",
            f"The results contain {plural(len(family.records), 'cell')}: "
            f"{listing([f'{amount} {status}' for status, amount in states.items()])}.",
        )


def _speedup(reading: Reading) -> Finding:
    """Return a finding on a speed-up, then its problem, interval and times."""
    figure, ours = reading.figure, f"`{reading.pair.after}`"
    assert figure
    today = f"`{reading.pair.before}`"
    if reading.statement.before_is:
        today += f" ({reading.statement.before_is})"
    decides = {"same": ", with the same decision", "own": ", with a decision of its own"}
    sentence = (
        f"{ours} is {figure.sign}{factor(figure.value)} as fast as {today}"
        f"{decides.get(reading.decision, '')}."
    )
    if figure.low <= 1 <= figure.high:
        sentence = f"{ours} cannot be distinguished from {today} in time."
    return Finding("gain", sentence, f"On `{reading.pair.problem}`: {reading_text(reading)}.")


def repetition(cells: Sequence[Cell]) -> Iterator[Finding]:
    """Yield a finding per counter on the variants that exceed its sufficient count.

    Each is told of the problem where most variants do, and of these where one does it most.
    """
    excesses: dict[str, dict[str, dict[str, tuple[int, float]]]] = {}
    for cell in cells:
        for name, declared in cell.counter_enough.items():
            enough = cell.counters.get(declared) if isinstance(declared, str) else declared
            done = cell.counters.get(name)
            if done is not None and enough is not None and done > enough:
                problems = excesses.setdefault(name, {})
                problems.setdefault(str(cell.problem), {})[cell.variant] = (done, enough)
    for name, problems in excesses.items():
        problem, variants = max(
            problems.items(),
            key=lambda item: (
                len(item[1]),
                max(done - enough for done, enough in item[1].values()),
            ),
        )
        most = sorted(variants.items(), key=lambda item: -item[1][0])
        shown = [f"{count(done)} in `{variant}`" for variant, (done, _) in most]
        least = count(max(enough for _, enough in variants.values()))
        yield Finding(
            "repeated work",
            f"`{name}`: {listing(shown)}, where {least} is sufficient.",
            f"Counted on `{problem}`.",
        )


def shortfalls(cells: Sequence[Cell]) -> Iterator[Finding]:
    """Yield a finding per variant on cells that cannot be compared, with the reasons."""
    by_variant: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        outcome: str = cell.status if cell.decision != "different" else "different decisions"
        by_variant.setdefault((outcome, cell.variant), []).append(cell)
    for (outcome, variant), those in by_variant.items():
        problems = plural(len(those), "problem")
        where = names((cell.problem for cell in those), most=3)
        if outcome == "different decisions":
            target = those[0].same_as or those[0].against
            yield Finding(
                outcome,
                f"`{variant}` must make the decision of `{target}`, and makes a different one on "
                f"{problems}.",
                f"Its times are not compared there: {where}.",
            )
        elif outcome == "failed":
            reason = " ".join((those[0].reason or "").split())
            if len(reason) > _REASON_LENGTH:
                reason = f"{reason[:_REASON_LENGTH]}…"
            detail = f"On {where}{f': {reason}' if reason else '.'}"
            yield Finding(outcome, f"`{variant}` failed on {problems}.", detail)
        elif outcome == "over budget":
            stops = listing([f"`{cell.problem}`{stopped_at(cell)}" for cell in those], most=3)
            sentence = f"`{variant}` was over budget on {problems}."
            yield Finding(outcome, sentence, f"It was stopped on {stops}.")
    unclear = [cell for cell in cells if cell.verdict == "inconclusive"]
    if unclear:
        compared = plural(sum(cell.ratio is not None for cell in cells), "comparison")
        of = names(dict.fromkeys(cell.variant for cell in unclear))
        sentence = f"{len(unclear)} of {compared} stayed inconclusive: of {of}."
        yield Finding("inconclusive", sentence, "The interval contains a limit of the noise floor.")
    if missing := [name for outcome, name in by_variant if outcome == "not installed"]:
        yield Finding("not installed", f"Not measured, because not installed: {names(missing)}.")


def compared(cells: Iterable[Cell], recorded: Cells) -> list[tuple[Cell, Ratio, Ratio]]:
    """Return the cells with a ratio here and in the record, to the same variant, and these two."""
    both = ((cell, recorded.get(cell.id)) for cell in cells)
    return [
        (cell, cell.ratio, other.ratio)
        for cell, other in both
        if other and other.against == cell.against and cell.ratio and other.ratio
        if min(cell.ratio.pairs, other.ratio.pairs) >= 2  # others have no interval
    ]


def are_apart(ratio: Ratio, other: Ratio) -> bool:
    """Return whether the intervals of two ratios do not overlap."""
    return ratio.high < other.low or other.high < ratio.low


def agreement(cells: Iterable[Cell], recorded: Cells) -> str:
    """Return a sentence on how many ratios differ from the record; "" if none can."""
    ratios = compared(cells, recorded)
    if not ratios:
        return ""
    apart = [(a.value, b.value) for _, a, b in ratios if are_apart(a, b)]
    most = f", at most {percent(max(max(p) / min(p) for p in apart) - 1)}" if apart else ""
    return (
        f"{len(apart)} of {plural(len(ratios), 'ratio')} differ from those recorded on another day "
        f"or machine by more than both intervals{most}."
    )


def disagreements(cells: Iterable[Cell], recorded: Cells) -> Iterator[Finding]:
    """Yield a finding for each ratio whose interval is apart from the recorded one."""
    for cell, ratio, other in compared(cells, recorded):
        if are_apart(ratio, other):
            here, there = (
                factor_with_interval(1 / found.value, 1 / found.high, 1 / found.low)
                for found in (ratio, other)
            )
            yield Finding(
                "record",
                f"The record differs: `{cell.variant}` on `{cell.problem}` is {here} as fast as "
                f"`{cell.against}` here, and {there} there.",
            )
