"""`shardbench selftest`: what this machine can resolve."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from msgspec import to_builtins
from rich.console import Group, RenderableType

from harness.measuring.environment import environment
from harness.measuring.selftest import Tally, selftest, tallies
from harness.model.cell import Cell
from harness.model.errors import UsageError
from harness.model.settings import SamplingRule
from reports.tables.table import TableColumn, numbers, table_of
from reports.tables.terminal import as_terminal
from shardbench.options import Json, Seed, check_writable, file_named, settings_of, show_or_write
from shardbench.progress import progress_display

_MOST_FALSE_ALARMS = 1
_LEAST_FOUND = 95


def selftest_command(
    rounds: Annotated[int, typer.Option(help="How often to compare.")] = 20,
    seconds: Annotated[float, typer.Option(help="Seconds to spend on timing a round.")] = 30.0,
    seed: Seed = 0,
    json: Json = "",
) -> None:
    """Measure this machine: equal variants, and ones made slower by 2, 5 and 10 %."""
    if rounds < 1:
        raise UsageError(f"--rounds must be at least 1, not {rounds}.")
    settings = settings_of(60.0, seconds, seed)
    check_writable(file_named(json))
    measured: list[list[Cell]] = []
    started = time.monotonic()
    with progress_display("", total=rounds) as listen:
        for cells in selftest(rounds, settings, listen):
            measured.append(cells)
            ended = ", ".join(f"{cell.variant} {cell.verdict}" for cell in cells if cell.verdict)
            listen.finished(f"{len(measured)}/{rounds}: {ended}")
    found = tallies(measured)
    minutes = (time.monotonic() - started) / 60
    document = {
        "tallies": [asdict(tally) for tally in found],
        "sampling": to_builtins(settings.sampling),
        "minutes": minutes,
        "environment": to_builtins(environment(seed)),
    }
    show_or_write(json, document, _table(found, settings.sampling, minutes))


def _table(found: Sequence[Tally], rule: SamplingRule, minutes: float) -> RenderableType:
    def count(verdict: str) -> TableColumn:
        return numbers(verdict, lambda tally: tally.verdicts.get(verdict, 0))

    table = table_of(
        found,
        numbers("added", lambda tally: f"{tally.percent} %"),
        *map(count, ("faster", "same", "slower", "inconclusive")),
        numbers("pairs", lambda tally: f"{tally.pairs:.0f}"),
        numbers("interval", lambda tally: f"±{tally.reach * 100:.1f} %"),
    )
    title = f"Verdicts of {found[0].rounds} rounds in {minutes:.0f} min\n"
    return Group(as_terminal(table, title), "", *_sentences(found, rule))


def _sentences(found: Sequence[Tally], rule: SamplingRule) -> list[str]:
    sentences = []
    for tally in found:
        if tally.percent == 0:
            low, high = tally.in_a_hundred(tally.differs)
            sentences.append(
                f"False alarms: {tally.differs} of {tally.rounds}, that is {low:.1f} to {high:.1f} "
                f"in 100 (goal: at most {_MOST_FALSE_ALARMS})."
            )
        elif tally.percent <= 100 * rule.noise_floor:
            sentences.append(
                f"{tally.percent} % more lies within the noise floor of "
                f"{100 * rule.noise_floor:.0f} %, where 'same' is the right answer."
            )
        else:
            low, high = tally.in_a_hundred(tally.found)
            goal = f" (goal: at least {_LEAST_FOUND})" if tally.percent == 5 else ""
            sentences.append(
                f"{tally.percent} % more: found {tally.found} times of {tally.rounds}, that is "
                f"{low:.1f} to {high:.1f} in 100{goal}."
            )
    resolved = [
        tally.percent
        for tally in found
        if tally.percent > 100 * rule.noise_floor
        and 100 * tally.found >= _LEAST_FOUND * tally.rounds
    ]
    sentences.append(
        f"This machine resolves slow-downs of {min(resolved)} % and more in calls like these."
        if resolved
        else "This machine resolves none of these slow-downs in that time; --seconds gives more."
    )
    return sentences
