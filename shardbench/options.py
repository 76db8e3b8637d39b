"""The options that several commands share, checks of their values, and output to files."""

import math
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.console import Console, RenderableType

from harness.contract.registry import Registry, load_registry
from harness.model.errors import ShardbenchError, UsageError
from harness.model.files import replace_file, to_json
from harness.model.machine import default_memory_gib
from harness.model.settings import SETUP_SECONDS, SamplingRule, Settings
from shardbench import completion, display

messages = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

Option = Callable[[Callable[..., None]], Callable[..., None]]
PATH = click.Path(path_type=Path)


class Number(click.FloatRange):
    """A number in a range, neither infinite nor nan."""

    name = "float"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return the number in a text; fails for other texts."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number:g} is not a finite number.", param, ctx)
        return number


POSITIVE = Number(min=0, min_open=True)


class OutFile(click.ParamType[Path]):
    """A file to write, in a folder that exists; its name ends in one of the `suffixes`, if any."""

    name = "path"

    def __init__(self, *suffixes: str) -> None:
        self.suffixes = suffixes

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        """Return the path; fails now if it cannot be written, not after minutes of measuring."""
        path = Path(value)
        if self.suffixes and path.suffix.lower() not in self.suffixes:
            self.fail(f"{path} must end in {' or '.join(self.suffixes)}.", param, ctx)
        check_writable(path)
        return path


# The problem of a command.

workload = click.option(
    "-w",
    "--workload",
    help="A name, name[key=value,...], or a file that its family reads.",
    shell_complete=completion.workloads,
)
topology = click.option(
    "-t",
    "--topology",
    help="A preset's name, or FILE.csv or FILE.csv#NAME; a captured workload has its own.",
    shell_complete=completion.topologies,
)
judge = click.option(
    "--machine",
    default="",
    help="The calibrated machine whose estimate judges plans: a name, a file of `shardbench "
    "calibrate`, or none; by default the one with the topology's GPU, if it is known.",
)
gpus = click.option(
    "-n", "--gpus", type=int, help="How many GPUs to plan for; a captured workload has its own."
)
family = click.option(
    "--family", default="", help="The family, if several can.", shell_complete=completion.families
)
against = click.option(
    "--against",
    default="",
    help="Another variant, to compare with.",
    shell_complete=completion.variants,
)


# How it is measured.

# All commands measure suites with these, because stored results with other values do not count.
SUITE_BUDGET = 30.0
SUITE_SECONDS = 4.0

memory = click.option(
    "--memory",
    type=POSITIVE,
    help="GiB of memory that a variant may have; 90 % of the machine's by default.",
)
seed = click.option(
    "--seed", default=0, help="Seed of the order of the calls and of the resampling."
)
fresh = click.option("--fresh", is_flag=True, help="Measure everything again.")


def _name_machine(_: click.Context, __: click.Parameter, name: str) -> None:
    """Name the class of this machine, for this process and those that it starts."""
    from harness.measuring.environment import MACHINE

    if name:
        os.environ[MACHINE] = name


machine = click.option(
    "--machine",
    default="",
    callback=_name_machine,
    expose_value=False,
    metavar="NAME",
    help="Name this machine's class: times of machines with this name, processor and number "
    "of cores count as its own. By default each host is its own class.",
)


def budget(default: float) -> Option:
    """Return the option --budget."""
    return click.option(
        "--budget",
        type=POSITIVE,
        default=default,
        help="Seconds that one call may take before it is stopped.",
    )


def measuring(budget_s: float, seconds_s: float) -> Option:
    """Return a decorator that adds the options of a measurement; the function gets `settings`."""

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def with_settings(
            budget: float, seconds: float, seed: int, memory: float | None, **others: Any
        ) -> None:
            function(settings=settings_of(budget, seconds, seed, memory), **others)

        seconds = click.option(
            "--seconds",
            type=POSITIVE,
            default=seconds_s,
            help="Seconds to spend on timing a problem; two blocks are timed in any case.",
        )
        command: Callable[..., None] = with_settings
        for option in (memory, seed, seconds, budget(budget_s)):
            command = option(command)
        return command

    return decorated


def settings_of(
    budget: float, seconds: float, seed: int, memory_gib: float | None = None
) -> Settings:
    """Return the settings; set-up may take the longer of SETUP_SECONDS and five times `budget`."""
    return Settings(
        budget,
        SamplingRule(seconds=seconds, seed=seed),
        setup_budget=max(SETUP_SECONDS, 5 * budget),
        memory_gib=memory_gib or default_memory_gib(),
    )


def names_in(text: str) -> list[str]:
    """Split comma-separated names; drops empty ones."""
    return [name.strip() for name in text.split(",") if name.strip()]


def found_registry() -> Registry:
    """Return the registry of families, which warns about each that cannot be loaded."""
    return load_registry(
        lambda name, reason: warn(f"Family '{name}' could not be loaded: {reason}")
    )


# What it writes.


def _check_json(_: click.Context, __: click.Parameter, file: str) -> str:
    if file not in ("", "-"):
        check_writable(Path(file))
    return file


json = click.option(
    "--json",
    callback=_check_json,
    default="",
    metavar="[FILE.json]",
    help="Print one JSON document alone, or write it to a file; --json=FILE takes any name.",
)


def warn(text: str) -> None:
    """Print a warning on standard error."""
    messages.print(text, style="yellow")


def check_writable(path: Path) -> None:
    """Raise UsageError if a file cannot be written."""
    if not path.parent.is_dir():
        raise UsageError(f"{path} cannot be written: {path.parent} is not a folder.")
    if path.is_dir():
        raise UsageError(f"{path} cannot be written: it is a folder.")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path} cannot be written: {path.parent} is read-only.")


def check_folder(folder: Path) -> None:
    """Create a folder if needed; raises UsageError if it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"Folder {folder} cannot be written: {error.strerror}.") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"Folder {folder} cannot be written: it is read-only.")


def write(path: Path, text: str | bytes) -> None:
    """Write a file atomically; raises ShardbenchError on failure."""
    try:
        replace_file(path, text)
    except OSError as error:
        raise ShardbenchError(f"{path} cannot be written: {error.strerror or error}.") from None


def write_json(path: Path, document: Any) -> None:
    """Write a JSON document to a file; raises ShardbenchError on failure."""
    write(path, to_json(document, indent=2) + "\n")


def show_or_write(json_file: str, document: Any, rendered: RenderableType) -> None:
    """Show `rendered`, and write `document` to the file of `--json`; for `-`, print only JSON."""
    if json_file == "-":
        sys.stdout.write(to_json(document, indent=2) + "\n")
        return
    display.show(rendered)
    if json_file:
        write_json(Path(json_file), document)
