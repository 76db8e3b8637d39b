"""Behaviour of all commands: help texts, errors for empty options, and interrupts."""

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import typer
from typer.core import TyperCommand, TyperGroup

from harness.model.errors import UsageError
from shardbench.options import messages

_JSON_FILE = re.compile(r"-?|.+\.json")
INTERRUPTED = 130  # the exit code of shells after SIGINT

START = """\
shardbench compares the programs that decide how a model is sharded.

Three commands to try:
  shardbench list families
  shardbench compare reshard@transformer[layers=2]/dgx_h100:4 --quick
  shardbench plan -w "synthetic[tables=40,seed=7]" -t dgx_h100 -n 16

shardbench --help lists all commands; shardbench doctor shows what works here.
"""

PANELS = ("Measure", "Look", "Plan", "For CI", "Your own workloads and machines", "This machine")


class InterruptedCommand(KeyboardInterrupt):
    """An interrupt; its message reports the kept results and how to resume."""


@contextmanager
def resumable(results: Path, fresh: bool = False) -> Iterator[None]:
    """On an interrupt in the block, raise InterruptedCommand with the file and how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        how = "the same command without --fresh goes on" if fresh else "the same command goes on"
        raise InterruptedCommand(f"the results so far are kept in {results}; {how}.") from None


def seconds_since_start() -> float:
    """Return the wall seconds since this process began, which include all imports."""
    began = psutil.Process().create_time() - psutil.boot_time()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began


def fix_hash_seed() -> None:
    """Start this program anew with hash seed 0, unless it has that seed already.

    TorchRec enumerates options in the order of a set of strings, so among equal plans the seed
    decides.
    """
    if sys.flags.hash_randomization:
        settings = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], settings)


class Command(TyperCommand):
    """A command that rejects empty options, so that an unset `"$NAMES"` never selects all.

    A bare `--json` means standard output. Only `-` and a word in .json are taken for its file, so
    that it never takes an argument; `--json=FILE` takes any name.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line's words, after giving a bare `--json` the value `-`."""
        words = [
            "--json=-" if word == "--json" and not _JSON_FILE.fullmatch(after) else word
            for word, after in zip(args, [*args, "--"][1:], strict=True)
        ]
        return super().parse_args(ctx, words)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; raises UsageError if an option's value is empty."""
        for option in self.params:
            is_empty = option.param_type_name == "option" and ctx.params.get(option.name) == ""
            if is_empty and ctx.get_parameter_source(option.name).name == "COMMANDLINE":
                raise UsageError(f"{option.opts[0]} must not be empty.")
        return super().invoke(ctx)


class GroupedCommands(TyperGroup):
    """A group of commands: lists them by panel in the help, and reports interrupts."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; on an interrupt, report the kept results and exit with 130."""
        try:
            return super().invoke(ctx)
        except InterruptedCommand as interrupt:
            messages.print(f"Interrupted: {interrupt}")
        except KeyboardInterrupt:
            messages.print("Interrupted: nothing is kept; the same command starts again.")
        raise typer.Exit(INTERRUPTED)

    def format_commands(self, _: Any, formatter: Any) -> None:
        """Write a help section per panel, in the order of `PANELS`, with uncut summaries."""
        panels: dict[str, list[tuple[str, str]]] = {panel: [] for panel in PANELS}
        command: Any  # typer sets `rich_help_panel`, but its types lack it
        for name, command in self.commands.items():
            said = command.get_short_help_str(limit=1000).removesuffix(".")
            panels.setdefault(command.rich_help_panel or "Commands", []).append((name, said))
        widest = max(map(len, self.commands))
        for title, rows in filter(all, panels.items()):
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), said) for name, said in rows])


def examples(*lines: str) -> str:
    """Return the epilog of a help text: example commands, one per line."""
    return "\n".join(["\b", "For example:", *(f"  {line}" for line in lines)])
