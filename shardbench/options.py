"""Options that several commands share, checks of their values, and output to files."""

import errno
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from harness.contract.registry import Registry, load_registry
from harness.measuring.environment import MACHINE
from harness.model.errors import ShardbenchError, UsageError
from harness.model.files import replace_file, to_json
from harness.model.machine import default_memory_gib
from harness.model.settings import SETUP_SECONDS, SamplingRule, Settings
from shardbench import display

messages = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

Budget = Annotated[float, typer.Option(help="Seconds that one call may take before it is stopped.")]
Memory = Annotated[
    float | None,
    typer.Option(
        help="GiB of memory that a variant's process may have before it is stopped; "
        "90 % of the machine's by default.",
    ),
]
Seconds = Annotated[
    float,
    typer.Option(help="Seconds to spend on timing a problem; two blocks are timed in any case."),
]
Seed = Annotated[int, typer.Option(help="Seed of the order of the calls and of the resampling.")]
Json = Annotated[
    str,
    typer.Option(
        "--json",
        metavar="[FILE.json]",
        help="Print one JSON document alone, or write it to a file; --json=FILE takes any name.",
    ),
]


def _name_machine(name: str) -> str:
    """Name the class of this machine, for this process and those that it starts."""
    if name:
        os.environ[MACHINE] = name
    return name


Machine = Annotated[
    str,
    typer.Option(
        "--machine",
        callback=_name_machine,
        metavar="NAME",
        help="Name this machine's class: times of machines with this name, processor and number "
        "of cores count as this machine's own. By default each host is its own class.",
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Measure everything again.")]

# All commands measure suites with these, because stored results with other values do not count.
SUITE_BUDGET = 30.0
SUITE_SECONDS = 4.0


def warn(text: str) -> None:
    """Print a warning on standard error."""
    messages.print(text, style="yellow")


def found_registry() -> Registry:
    """Return the registry of families, and warn about families that failed to load."""
    registry = load_registry()
    for name, reason in registry.failures.items():
        warn(f"Family '{name}' could not be loaded: {reason}")
    return registry


def settings_of(
    budget: float, seconds: float, seed: int, memory_gib: float | None = None
) -> Settings:
    """Return the settings; raises UsageError if a time or the memory is not positive and finite.

    Set-up may take the longer of SETUP_SECONDS and five times `budget`.
    """
    check_seconds("--budget", budget)
    check_seconds("--seconds", seconds)
    if memory_gib is None:
        memory_gib = default_memory_gib()
    elif not 0 < memory_gib < float("inf"):
        raise UsageError(f"--memory must be a positive number of GiB, not {memory_gib:g}.")
    return Settings(
        budget,
        SamplingRule(seconds=seconds, seed=seed),
        setup_budget=max(SETUP_SECONDS, 5 * budget),
        memory_gib=memory_gib,
    )


def check_seconds(option: str, value: float) -> None:
    """Raise UsageError unless an option's value is a positive number of seconds."""
    if not 0 < value < float("inf"):
        raise UsageError(f"{option} must be a positive number of seconds, not {value:g}.")


def names_in(text: str) -> list[str]:
    """Split comma-separated names; drops empty ones."""
    return [name.strip() for name in text.split(",") if name.strip()]


def file_named(option: str) -> Path | None:
    """Return an option's value as a path, or None if it is empty or `-` (standard output)."""
    return None if option in ("", "-") else Path(option)


def check_writable(path: Path | None) -> None:
    """Raise UsageError if a file cannot be written; call this before minutes of measuring."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise UsageError(f"{path} cannot be written: {path.parent} is not a folder.")
    if path.is_dir():
        raise UsageError(f"{path} cannot be written: it is a folder.")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path} cannot be written: {path.parent} is read-only.")


def check_out(out: Path | None, *suffixes: str) -> None:
    """Raise UsageError if `out` is given and has another suffix or cannot be written."""
    if out is not None and out.suffix.lower() not in suffixes:
        raise UsageError(f"{out} must end in {' or '.join(suffixes)}.")
    check_writable(out)


def check_folder(folder: Path) -> None:
    """Create a folder if needed; raises UsageError if it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UsageError(f"Folder {folder} cannot be written: {error.strerror}.") from None


def write(path: Path, text: str | bytes) -> None:
    """Write a file atomically; raises ShardbenchError on failure."""
    try:
        replace_file(path, text)
    except OSError as error:
        raise ShardbenchError(f"{path} cannot be written: {error.strerror or error}.") from None


def show_or_write(option: str, document: Any, rendered: RenderableType) -> None:
    """Show `rendered`, and write `document` to the file of `--json`; for `-`, print only JSON."""
    text = to_json(document, indent=2) + "\n"
    if option == "-":
        sys.stdout.write(text)
        return
    display.show(rendered)
    if file := file_named(option):
        write(file, text)
