"""`shardbench selftest`: measure the smallest slow-down that this machine can detect."""

import time
from collections.abc import Sequence
from typing import Any, cast

import click
from msgspec import to_builtins
from msgspec.structs import replace
from rich.console import Group, RenderableType

from harness.measuring.environment import environment
from harness.measuring.selftest.file import SelfTest, note_selftest, self_test
from harness.measuring.selftest.rounds import (
    ADDED,
    LONG,
    LONG_SLOWDOWNS,
    SHORT,
    SLOWDOWNS,
    Tally,
    selftest,
    tallies,
)
from harness.measuring.timing.verdict import NOISE_FLOOR
from harness.model.cell import Cell
from harness.model.errors import UsageError
from harness.model.settings import SamplingRule, Settings
from reports.core.table import TableColumn, numbers, table_of
from reports.core.terminal import as_terminal
from shardbench import options
from shardbench.command import command
from shardbench.progress import progress_display

_WAYS = ("best", "turns", "turns-in-one-process", "side-by-side", "one-core-each")
_MOST_FALSE_ALARMS = 1
_LEAST_FOUND = 95
_NAMED = ", ".join(str(percent) for percent in ADDED if percent)
# A round takes at least these seconds, or this many calls of each variant with their overhead.
_SECONDS, _CALLS, _OVERHEAD = 30.0, 12, 1.6


@command("shardbench selftest --rounds 5 --call 0.05")
@click.option("--rounds", type=click.IntRange(min=1), default=20, help="How often to compare.")
@click.option(
    "--call",
    type=options.POSITIVE,
    multiple=True,
    help="Seconds that a call takes about, 0.002 unless given; may be repeated.",
)
@click.option(
    "--added",
    type=int,
    multiple=True,
    help=f"Per cent of work to add, of {_NAMED}; may be repeated.",
)
@click.option(
    "--noise-floor",
    type=options.Number("at least 0 and less than 1", lambda share: 0 <= share < 1),
    default=NOISE_FLOOR,
    help="Share of the time that counts as no difference.",
)
@click.option(
    "--seconds",
    type=options.POSITIVE,
    help="Seconds to spend on timing a round; 30, or what twelve calls take.",
)
@options.seed
@click.option(
    "--way",
    type=click.Choice(_WAYS),
    default="best",
    help="How to time the calls, to compare the ways themselves.",
)
@click.option(
    "--turn",
    type=options.POSITIVE,
    default=SamplingRule().turn_seconds,
    help="Seconds that a turn of short calls lasts at least.",
)
@options.json
def selftest_command(
    rounds: int,
    call: tuple[float, ...],
    added: tuple[int, ...],
    noise_floor: float,
    seconds: float | None,
    seed: int,
    way: str,
    turn: float,
    json: str,
) -> None:
    """Measure which slow-downs this machine can detect.

    Compares equal variants, and variants with a few per cent more work, and counts the verdicts.
    """
    lengths = call or [SHORT / 1000]
    if unknown := set(added) - set(ADDED):
        raise UsageError(f"--added must be one of {_NAMED}, not {min(unknown)}.")
    options.check_writable(options.file_named(json))
    reports, rules = [], []
    for length in lengths:
        usual = LONG_SLOWDOWNS if 1000 * length > LONG else SLOWDOWNS
        percents = (0, *dict.fromkeys(percent for percent in added if percent)) if added else usual
        enough = max(_SECONDS, _CALLS * _OVERHEAD * (1 + len(percents)) * length)
        settings = options.settings_of(
            max(60.0, 20 * length), enough if seconds is None else seconds, seed
        )
        rule = replace(
            settings.sampling,
            way=cast("Any", way.replace("-", " ")),
            turn_seconds=turn,
            noise_floor=noise_floor,
        )
        settings = replace(settings, sampling=rule)
        reports.append(_measured(rounds, length, settings, percents))
        rules.append(rule)
        note_selftest(reports[-1][0])
    document = {
        "selftests": [to_builtins(result) for result, _ in reports],
        "sampling": [to_builtins(rule) for rule in rules],
        "environment": to_builtins(environment(seed)),
    }
    options.show_or_write(json, document, Group(*(shown for _, shown in reports)))


def _measured(
    rounds: int, length: float, settings: Settings, added: Sequence[int]
) -> tuple[SelfTest, RenderableType]:
    measured: list[list[Cell]] = []
    started = time.monotonic()
    with progress_display("", rounds) as listen:
        for cells in selftest(rounds, settings, 1000 * length, listen, added):
            measured.append(cells)
            ended = ", ".join(f"{cell.variant} {cell.verdict}" for cell in cells if cell.verdict)
            listen.finished("rounds", ended)
    found = tallies(measured)
    round_seconds = (time.monotonic() - started) / rounds
    result = self_test(measured, length, round_seconds)
    return result, _table(found, settings.sampling, result)


def _table(found: Sequence[Tally], rule: SamplingRule, result: SelfTest) -> RenderableType:
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
        f"Verdicts of {result.rounds} rounds, {result.round_seconds:.0f} s each; calls of "
        f"{1000 * result.call_seconds:g} ms, {result.way}\n"
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
                f"{100 * rule.noise_floor:g} %, where 'same' is the right answer."
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
