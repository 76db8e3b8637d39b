"""Options, files and progress of the commands that measure this machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from harness.contract import Family
from harness.contract.abilities.estimates import Bench, Measurable, OnBench
from harness.contract.family import load
from harness.estimates.kept_times import Stopwatch, TimesFile
from harness.measuring.environment import environment
from harness.measuring.timing.clock import SystemClock
from harness.model.errors import UsageError
from harness.store.lock import hold
from shardbench import completion
from shardbench.command import resumable
from shardbench.options import found_registry, messages
from shardbench.problem_options import able_family
from shardbench.progress import progress_bar

FOLDER = Path("validations")

DeviceOption = Annotated[str, typer.Option("--device", help="What kernels run on: cpu or cuda.")]
IndicesOption = Annotated[
    str,
    typer.Option("--indices", help="How rows are looked up: uniform, zipf, zipf:EXPONENT, reuse."),
]
FamilyOption = Annotated[
    str,
    typer.Option(
        "--family", help="The family, if several can.", autocompletion=completion.families
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Measure again what is measured already.")]


def measuring_family(name: str) -> tuple[Family[Any, Any], Measurable[Any]]:
    """Return the family of a name, or the only one that measures; raises UsageError."""
    family = able_family(found_registry(), name, "measuring", "measure")
    found: Measurable[Any] | None = load(family.abilities.measuring)
    if found is None:
        raise UsageError(f"Family '{family.name}' does not measure its decisions.")
    return family, found


@contextmanager
def measuring(kept: Path, bench: Bench, fresh: bool) -> Iterator[Callable[[OnBench], Stopwatch]]:
    """Hold a file of times and show progress; yields a function that starts a stopwatch.

    Times with other settings than those of the bench and of this machine are measured again.
    """
    console = Console(stderr=True)
    with hold(kept), progress_bar(console) as bar, resumable(kept, fresh):
        task = bar.add_task("preparing", total=None)
        last = ""

        def on_progress(measured: str, done: int, of: int) -> None:
            nonlocal last
            bar.update(task, description=f"measuring {measured}", completed=done, total=of)
            if measured != last and not console.is_terminal:
                messages.print(f"measuring {measured}: {of - done}")
            last = measured

        def stopwatch(ready: OnBench) -> Stopwatch:
            here = environment(bench.seed)
            settings: dict[str, str | float] = {
                "machine": here.machine or "",
                "device": ready.device,
                "inputs": bench.inputs,
                "seed": bench.seed,
                **here.packages,
            }
            return Stopwatch(ready, TimesFile(kept, settings, fresh), SystemClock(), on_progress)

        yield stopwatch
