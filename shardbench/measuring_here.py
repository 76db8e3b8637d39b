"""Options and progress of the commands that measure this machine: `validate` and `calibrate`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from harness.contract import Family
from harness.contract.abilities.validation import Bench, Measurable
from harness.contract.family import load
from harness.estimates.times import Settings, Told
from harness.measuring.environment import environment
from harness.model.errors import UsageError
from shardbench.command import resumable
from shardbench.options import messages
from shardbench.progress import progress_bar

FOLDER = Path("validations")

DeviceOption = Annotated[str, typer.Option("--device", help="What kernels run on: cpu or cuda.")]
IndicesOption = Annotated[
    str,
    typer.Option("--indices", help="How rows are looked up: uniform, zipf, zipf:EXPONENT, reuse."),
]
RankMemory = Annotated[
    float | None,
    typer.Option(
        "--memory",
        help="GiB that a rank may take; by default 15 % of the machine's, or 60 % of what a GPU "
        "has left.",
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Measure again what is measured already.")]


def measurable(family: Family[Any, Any]) -> Measurable[Any]:
    """Return how a family's decisions are measured; raises UsageError where that is not known."""
    found: Measurable[Any] | None = load(family.abilities.measuring)
    if found is None:
        raise UsageError(f"Family '{family.name}' does not measure its decisions.")
    return found


def bench_of(device: str, inputs: str, memory_gib: float | None, seed: int) -> Bench:
    """Return what to measure with; raises UsageError for an amount of memory that is none."""
    if memory_gib is not None and not 0 < memory_gib < float("inf"):
        raise UsageError(f"--memory must be a positive number of GiB, not {memory_gib:g}.")
    return Bench(device, inputs, memory_gib, seed)


def settings_of(bench: Bench, device: str) -> Settings:
    """Return what times depend on: those of other settings are measured again."""
    here = environment(bench.seed)
    packages = {name: here.packages[name] for name in sorted(here.packages)}
    return {
        "machine": here.machine or "",
        "device": device,
        "inputs": bench.inputs,
        "seed": bench.seed,
        **packages,
    }


def file_name(text: str) -> str:
    """Return an id as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_.=-]+", "_", text).strip("_")


@contextmanager
def told(kept: Path, fresh: bool) -> Iterator[Told]:
    """Show what is measured, into a file that the same command goes on with."""
    console = Console(stderr=True)
    with progress_bar(console) as bar:
        task = bar.add_task("preparing", total=None)
        last = ""

        def tell(doing: str, done: int, of: int) -> None:
            nonlocal last
            bar.update(task, description=f"measuring {doing}", completed=done, total=of)
            if doing != last and not console.is_terminal:
                messages.print(f"measuring {doing}: {of - done}")
            last = doing

        with resumable(kept, fresh):
            yield tell
