"""`shardbench record`: the declared suite, measured at the sizes of the claims into `record/`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from harness.contract.registry import load_registry
from harness.measuring.jobs import Event, Listener
from harness.model.errors import UsageError
from harness.store.cells import CellStore
from harness.suites.record import Record
from harness.suites.recording import Recording, RecordPart, gpu_of
from reports.core.formatting import plural, seconds
from shardbench import options
from shardbench.command import command
from shardbench.options import check_folder, found_registry, messages, write
from shardbench.results_file import measuring_into


@command("shardbench record --dry-run", "shardbench record --stale")
@click.argument(
    "folder",
    type=options.PATH,
    default=Path("record"),
    help="The folder of the record, with its suite.toml.",
)
@click.option(
    "--repository",
    multiple=True,
    metavar="LIBRARY=PATH",
    help="A clone of a library, to run its commits; repeatable.",
)
@click.option("--device", default="", help="Device of a suite such as record/gpu: cpu or cuda.")
@click.option(
    "--stale", is_flag=True, help="Measure only what changed sources of a family made old."
)
@click.option(
    "--only", default="", help="Measure only the parts that have this text in their names."
)
@click.option("--dry-run", is_flag=True, help="List the parts, and measure nothing.")
def record(
    folder: Path, repository: tuple[str, ...], device: str, stale: bool, only: str, dry_run: bool
) -> None:
    """Measure the suite of a record, which docs take figures from."""
    kept = Record.read(folder, device, gpu_of(device) if device else "")
    clones = _clones(repository or [])
    found_registry()  # warns of families that cannot be loaded
    recording = Recording(kept, load_registry, clones, _write_page, stale)
    cells, commits = CellStore(kept.cells_file), CellStore(kept.commits_file)
    with measuring_into(cells), measuring_into(commits), measuring_into(kept.run_store):
        parts = [part for part in recording.parts() if only in part.name]
        if not parts:
            raise UsageError(f"No part of {folder} has '{only}' in its name.")
        left = [part for part in parts if not part.is_measured]
        if dry_run:
            for part in parts:
                state = "measured " if part.is_measured else "to measure"
                last = f", {seconds(part.seconds)} last time" if part.seconds else ""
                print(f"{state:10}  {part.kind} {part.name.removeprefix(f'{part.kind} ')}{last}")
            print(f"{plural(len(parts), 'part')}, {len(left)} to measure, into {kept.folder}.")
            return
        check_folder(kept.folder)
        failed = 0
        for number, part in enumerate(recording.measure(left, _listen), start=1):
            failed += not part.is_measured
            took = f"{number}/{len(left)} {part.name} in {part.seconds:.0f} s"
            messages.print(f"{took}: {part.outcome}")
    messages.print(
        f"{plural(len(left) - failed, 'part')} measured into {kept.folder}, "
        f"{len(parts) - len(left)} were measured already"
        f"{f', {failed} could not be measured' if failed else ''}."
    )
    if failed:
        raise click.exceptions.Exit(1)


def _clones(named: Sequence[str]) -> dict[str, Path]:
    clones = {}
    for given in named:
        library, _, path = given.partition("=")
        if not (library and path):
            raise UsageError(f"--repository must be LIBRARY=PATH, not '{given}'.")
        clones[library] = Path(path)
    return clones


def _write_page(path: Path, profiles: Sequence[Any], problem: str) -> None:
    from reports.flames import flame_page

    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, flame_page(profiles, problem))


def _listen(part: RecordPart) -> Listener:
    shown = ""

    def step(event: Event) -> None:
        nonlocal shown
        doing = f"{event.stage} {event.variant}"
        if doing != shown and event.steps:
            shown = doing
            messages.print(f"  {part.name}: {doing}")

    return step
