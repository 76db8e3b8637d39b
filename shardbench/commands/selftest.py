"""`shardbench selftest`: measure the smallest slow-down that this machine can detect."""

import time
from typing import Any, cast

import click
from msgspec import to_builtins
from msgspec.structs import replace
from rich.console import Group, RenderableType

from harness.measuring.environment import environment
from harness.measuring.selftest import (
    ADDED,
    LONG,
    LONG_SLOWDOWNS,
    SHORT,
    SLOWDOWNS,
    SelfTest,
    note_selftest,
    selftest,
)
from harness.measuring.timing.verdict import NOISE_FLOOR
from reports.core.table import numbers, table_of
from reports.core.terminal import as_terminal
from shardbench import options
from shardbench.command import command
from shardbench.progress import progress_display

_WAYS = ("best", "turns", "turns-in-one-process", "side-by-side")
_LEAST_FOUND = 95
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
    type=click.Choice([str(percent) for percent in ADDED]),
    multiple=True,
    help="Per cent of work to add; may be repeated.",
)
@click.option(
    "--noise-floor",
    type=options.Number(min=0, max=1, max_open=True),
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
@options.json
def selftest_command(
    rounds: int,
    call: tuple[float, ...],
    added: tuple[str, ...],
    noise_floor: float,
    seconds: float | None,
    seed: int,
    way: str,
    json: str,
) -> None:
    """Measure which slow-downs this machine can detect.

    Compares equal variants, and variants with a few per cent more work, and counts the verdicts.
    """
    results, rules = [], []
    for length in call or [SHORT / 1000]:
        usual = LONG_SLOWDOWNS if 1000 * length > LONG else SLOWDOWNS
        percents = tuple(dict.fromkeys((0, *map(int, added)))) if added else usual
        enough = max(_SECONDS, _CALLS * _OVERHEAD * (1 + len(percents)) * length)
        settings = options.settings_of(max(60.0, 20 * length), seconds or enough, seed)
        chosen = cast("Any", way.replace("-", " "))
        rule = replace(settings.sampling, way=chosen, noise_floor=noise_floor)
        measured = []
        started = time.monotonic()
        with progress_display(total=rounds) as listen:
            limits = replace(settings, sampling=rule)
            for cells in selftest(rounds, limits, 1000 * length, listen, percents):
                measured.append(cells)
                verdicts = (f"{cell.variant} {cell.verdict}" for cell in cells if cell.verdict)
                listen.finished("rounds", ", ".join(verdicts))
        results.append(SelfTest.of(measured, length, (time.monotonic() - started) / rounds))
        rules.append(rule)
        note_selftest(results[-1])
    document = to_builtins(
        {"selftests": results, "sampling": rules, "environment": environment(seed)}
    )
    shown = [_shown(result, noise_floor) for result in results]
    options.show_or_write(json, document, Group(*shown))


def _shown(result: SelfTest, noise_floor: float) -> RenderableType:
    """Return a table of the verdicts, and what this machine resolves."""
    table = table_of(
        {0: result.differing, **result.found}.items(),
        numbers("work added", lambda row: f"{row[0]} %"),
        numbers("judged different", lambda row: f"{row[1]} of {result.rounds}"),
        numbers(
            "in 100 rounds", lambda row: "{:.1f} to {:.1f}".format(*result.in_a_hundred(row[1]))
        ),
    )
    title = (
        f"{result.rounds} rounds, {result.round_seconds:.0f} s each; calls of "
        f"{1000 * result.call_seconds:g} ms, {result.way}\n"
    )
    resolved = [
        percent
        for percent, hits in result.found.items()
        if percent > 100 * noise_floor and 100 * hits >= _LEAST_FOUND * result.rounds
    ]
    process = f", a process by {100 * result.process_spread:.1f} % beyond that"
    return Group(
        title,
        as_terminal(table),
        "",
        "With 0 % added, a difference is a false alarm, of which there should be at most 1 in 100; "
        f"{result.undecided} were inconclusive.",
        f"A pair varies by {100 * result.pair_spread:.1f} %"
        f"{process if result.process_spread else ''}; {result.pairs:.0f} pairs give a ratio to "
        f"±{100 * result.reach:.1f} %.",
        f"This machine resolves slow-downs of {min(resolved)} % and more in calls like these."
        if resolved
        else "This machine resolves none of these slow-downs in that time; --seconds gives more.",
    )
