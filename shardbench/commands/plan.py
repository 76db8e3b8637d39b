"""`shardbench plan`: plan with the best variant, and write a plan file for a job."""

import math
import re
import time
from pathlib import Path
from typing import Any

import click
import psutil
from rich.text import Text

from harness.contract import Remedies
from harness.measuring.request import Request
from harness.model.errors import InfeasibleDecision, ShardbenchError, UsageError
from harness.model.files import to_json
from harness.model.ids import WorkloadSpec
from harness.planning.plan import (
    Near,
    Planned,
    baseline,
    find_remedies,
    fixed,
    front,
    plan as make_plan,
)
from harness.topologies.lookup import placed_on
from reports.core.formatting import seconds as duration
from shardbench import completion, display, options, problem_options
from shardbench.command import InterruptedCommand, command
from shardbench.display.plan import (
    document,
    front_shown,
    gain_shown,
    remedies_document,
    remedies_shown,
    shown,
)
from shardbench.progress import progress_display

_RANKS = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


@command('shardbench plan -w "synthetic[tables=40,seed=7]" -t dgx_h100 -n 16')
@click.option(
    "tables",
    "--tables",
    "--workload",
    "-w",
    required=True,
    help="What to shard: a CSV/Parquet file, a name, or name[key=value,...].",
    shell_complete=completion.workloads,
)
@problem_options.topology
@problem_options.gpus
@click.option(
    "--out", "-o", type=options.OutFile(), default="plan.json", help="File for the plan, as JSON."
)
@problem_options.family
@click.option(
    "--variant", default="", help="The variant to plan with.", shell_complete=completion.variant
)
@click.option(
    "--seconds",
    type=options.POSITIVE,
    help="Seconds that the search may take, if it can be limited.",
)
@click.option(
    "previous",
    "--from",
    type=options.PATH,
    help="The plan that tables are placed by now, to move little of.",
)
@click.option(
    "--move-gib",
    type=options.Number("a number of at least 0", lambda gib: 0 <= gib < math.inf),
    help="GiB of it that may move at most; any by default.",
)
@click.option(
    "--lost-ranks", default="", help="Its ranks that went away, as 8-15,20; else the last ones."
)
@click.option(
    "--pareto",
    type=options.PATH,
    help="Folder for plans that move more and more, with a table and a figure.",
)
@click.option("--all-ranks", is_flag=True, help="Show every rank.")
@options.json
@click.option(
    "--fix", type=click.IntRange(min=1), help="If no plan fits, plan with this one of the changes."
)
def plan(
    tables: str,
    topology: str | None,
    gpus: int | None,
    out: Path,
    family: str,
    variant: str,
    seconds: float | None,
    previous: Path | None,
    move_gib: float | None,
    lost_ranks: str,
    pareto: Path | None,
    all_ranks: bool,
    json: str,
    fix: int | None,
) -> None:
    """Plan with the best variant, and write the plan as JSON.

    Shows the load of each rank, a proven limit on the gap to the best plan, and what the plan of
    the captured planner, or of the released library, costs. With --from, the new plan moves few
    bytes of the previous one.
    """
    near = None
    if previous is not None:
        limit = math.inf if move_gib is None else move_gib
        near = Near(previous, limit, _ranks(lost_ranks))
    elif move_gib is not None or lost_ranks or pareto:
        raise UsageError(
            "--move-gib, --lost-ranks and --pareto need --from, the plan that tables are placed by "
            "now."
        )
    workload = WorkloadSpec.parse(tables)
    registry = options.found_registry()
    able = problem_options.able_family(registry, family, "planning", "plan", workload)
    placed = placed_on(able, workload, topology, gpus)
    request = Request(able, workload, placed, (variant,) if variant else ())
    if near is not None and pareto is not None:
        if variant or move_gib is not None:
            raise UsageError(
                "--pareto takes no --variant and no --move-gib: the family's choice plans, for "
                "many amounts that move."
            )
        _write_front(request, near, seconds, pareto)
        return
    try:
        with progress_display() as progress:
            made = make_plan(request, seconds, near, begins=progress.stage)
    except InfeasibleDecision as error:
        made = _fixed(request, error, fix, json)
    options.write(out, to_json(made.document, indent=2) + "\n")
    if json != "-":
        display.show(shown(made, all_ranks))
    if made.changes:
        options.messages.print(f"This plan needs a change: {' '.join(made.changes)}")
    if near is not None and made.moved_gib is not None and made.moved_gib > near.gib:
        options.warn(
            f"No plan was found that moves at most {near.gib:.4g} GiB; this one moves "
            f"{made.moved_gib:.4g} GiB, the least that was found."
        )
    options.messages.print(f"Wrote {out}")
    try:
        with progress_display() as progress:
            today = baseline(request, made, progress.stage)
    except KeyboardInterrupt:
        raise InterruptedCommand(f"the plan is kept in {out}.") from None
    planning, whole = (duration(s, trim=True) for s in (made.planning_s, _seconds_since_start()))
    took = f"Planned in {planning}; the whole command took {whole}."
    gain = gain_shown(made, today) if today is not None else ""
    text = Text("\n".join(filter(None, (gain, took))))
    options.show_or_write(json, document(made, today, out), text)


def _ranks(text: str) -> frozenset[int]:
    """Return the ranks in a text such as `8-15,20`; raises UsageError for other texts."""
    ranks: set[int] = set()
    for part in text.split(",") if text else ():
        ends = _RANKS.fullmatch(part.strip())
        first = int(ends[1]) if ends else 0
        last = int(ends[2] or first) if ends else -1
        if first > last:
            raise UsageError(f"--lost-ranks must be like 8-15,20, not '{text}'.")
        ranks.update(range(first, last + 1))
    return frozenset(ranks)


def _fixed(request: Request, error: InfeasibleDecision, fix: int | None, json: str) -> Planned:
    """Return the plan of change number `fix`; without a number, show all changes and exit with 1.

    Raises UsageError if there is no such change.
    """
    if fix is None:
        show_remedies(request, error, json)
        raise click.exceptions.Exit(1)
    began = time.monotonic()
    changes = _remedies(request, error).remedies
    if fix > len(changes):
        raise UsageError(f"There is no change {fix}: {len(changes)} would be enough.")
    return fixed(request, changes[fix - 1], time.monotonic() - began)


def show_remedies(request: Request, error: InfeasibleDecision, json: str = "") -> None:
    """Print why no plan fits, and the changes that help."""
    remedies = _remedies(request, error)
    unit = request.family.qualities[0].unit
    options.show_or_write(json, remedies_document(error, remedies), remedies_shown(remedies, unit))


def _remedies(request: Request, error: InfeasibleDecision) -> Remedies[Any, Any]:
    options.messages.print(str(error), style="red")
    with progress_display() as progress:
        return find_remedies(request, begins=progress.stage)


def _write_front(request: Request, near: Near, seconds: float | None, folder: Path) -> None:
    """Write plans that move increasing numbers of bytes into a folder, with table and figure."""
    from reports.family.quality import draw_front

    options.check_folder(folder)
    made: list[Planned] = []
    with progress_display() as progress:
        for planned in front(request, near, seconds, progress.stage):
            made.append(planned)
            document = to_json(planned.document, indent=2) + "\n"
            options.write(folder / f"plan-{len(made)}.json", document)
    if not made:
        raise ShardbenchError("No plan was found.")
    drawing = draw_front(made)
    options.write(folder / "front.svg", drawing.svg)
    options.write(folder / "front.csv", drawing.data.to_csv(index=False))
    display.show(front_shown(made[0].cell, drawing.data))
    options.messages.print(f"Wrote {len(made)} plans, front.csv and front.svg into {folder}")
    print(f"The whole command took {duration(_seconds_since_start(), trim=True)}.")


def _seconds_since_start() -> float:
    """Return the wall seconds since this process began, which include all imports."""
    began = psutil.Process().create_time() - psutil.boot_time()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began
