"""`shardbench selftest`: what this machine can resolve."""

import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

import typer
from msgspec import to_builtins
from msgspec.structs import replace
from rich.console import Group, RenderableType

from harness.measuring.environment import environment
from harness.measuring.selftest import SHORT, Tally, selftest, tallies
from harness.measuring.selftest_file import SelfTest, note_selftest, self_test
from harness.model.cell import Cell
from harness.model.errors import UsageError
from harness.model.settings import SamplingRule, Settings
from reports.tables.table import TableColumn, numbers, table_of
from reports.tables.terminal import as_terminal
from shardbench.options import (
    Json,
    Seed,
    check_seconds,
    check_writable,
    file_named,
    settings_of,
    show_or_write,
)
from shardbench.progress import progress_display

_MOST_FALSE_ALARMS = 1
_LEAST_FOUND = 95


def selftest_command(
    rounds: Annotated[int, typer.Option(help="How often to compare.")] = 20,
    call: Annotated[
        list[float] | None,
        typer.Option(help="Seconds that a call takes about, 0.002 unless given; may be repeated."),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Seconds to spend on timing a round.")] = 30.0,
    seed: Seed = 0,
    way: Annotated[
        Literal["best", "turns", "turns-in-one-process", "side-by-side", "one-core-each"],
        typer.Option(help="How to time the calls, to compare the ways themselves."),
    ] = "best",
    turn: Annotated[
        float, typer.Option(help="Seconds that a turn of short calls lasts at least.")
    ] = SamplingRule().turn_seconds,
    json: Json = "",
) -> None:
    """Measure this machine: equal variants, and ones made slower by 2, 5 and 10 %."""
    if rounds < 1:
        raise UsageError(f"--rounds must be at least 1, not {rounds}.")
    check_seconds("--turn", turn)
    lengths = call or [SHORT / 1000]
    for length in lengths:
        check_seconds("--call", length)
    settings = settings_of(max(60.0, 20 * max(lengths)), seconds, seed)
    named = cast("Any", way.replace("-", " "))
    settings = replace(settings, sampling=replace(settings.sampling, way=named, turn_seconds=turn))
    check_writable(file_named(json))
    reports = [_measured(rounds, length, settings) for length in lengths]
    tested = [told for told, _ in reports]
    for each in tested:
        note_selftest(each)
    document = {
        "selftests": [to_builtins(each) for each in tested],
        "sampling": to_builtins(settings.sampling),
        "environment": to_builtins(environment(seed)),
    }
    show_or_write(json, document, Group(*(shown for _, shown in reports)))


def _measured(rounds: int, length: float, settings: Settings) -> tuple[SelfTest, RenderableType]:
    measured: list[list[Cell]] = []
    started = time.monotonic()
    with progress_display("", total=rounds) as listen:
        for cells in selftest(rounds, settings, 1000 * length, listen):
            measured.append(cells)
            ended = ", ".join(f"{cell.variant} {cell.verdict}" for cell in cells if cell.verdict)
            listen.finished(f"{len(measured)}/{rounds}: {ended}")
    found = tallies(measured)
    round_seconds = (time.monotonic() - started) / rounds
    told = self_test(measured, length, round_seconds)
    return told, _table(found, settings.sampling, told)


def _table(found: Sequence[Tally], rule: SamplingRule, told: SelfTest) -> RenderableType:
    def count(verdict: str) -> TableColumn:
        return numbers(verdict, lambda tally: tally.verdicts.get(verdict, 0))

    table = table_of(
        found,
        numbers("added", lambda tally: f"{tally.percent} %"),
        *map(count, ("faster", "same", "slower", "inconclusive")),
        numbers("pairs", lambda tally: f"{tally.pairs:.0f}"),
        numbers("processes", lambda tally: f"{tally.processes:.0f}"),
        numbers("interval", lambda tally: f"±{tally.reach * 100:.1f} %"),
    )
    title = (
        f"Verdicts of {told.rounds} rounds, {told.round_seconds:.0f} s each; calls of "
        f"{1000 * told.call_seconds:g} ms, {told.way}\n"
    )
    varies = f"A pair varies by {100 * found[0].pair_spread:.1f} %"
    if found[0].processes > 1 and found[0].pairs > found[0].processes:
        varies += f", a process by {100 * found[0].process_spread:.1f} % beyond that"
    return Group(as_terminal(table, title), "", f"{varies}.", *_sentences(found, rule))


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
