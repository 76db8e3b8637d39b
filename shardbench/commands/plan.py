"""`shardbench plan`: plan with the best variant, and write a plan file for a job."""

import math
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from harness.contract import Remedies
from harness.measuring.request import Request
from harness.model.errors import InfeasibleDecision, ShardbenchError, UsageError
from harness.model.ids import WorkloadSpec
from harness.planning.baseline import baseline
from harness.planning.plan import Near, Planned, find_remedies, fixed, front, plan as make_plan
from harness.store.results import to_json
from reports.core.formatting import seconds as duration
from shardbench import completion, display
from shardbench.command import InterruptedCommand, seconds_since_start
from shardbench.display.plan import document, front_shown, gain_shown, shown
from shardbench.display.remedies import document as remedies_document, shown as remedies_shown
from shardbench.options import (
    Json,
    check_folder,
    check_seconds,
    check_writable,
    file_named,
    found_registry,
    messages,
    show_or_write,
    warn,
    write,
)
from shardbench.problem_options import (
    FamilyIfSeveral,
    GpusIfAny,
    TopologyIfAny,
    able_family,
    placed_with_note,
)
from shardbench.progress import stage_display

_RANKS = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


def plan(
    tables: Annotated[
        str,
        typer.Option(
            "--tables",
            "--workload",
            "-w",
            help="What to shard: a CSV/Parquet file, a name, or name[key=value,...].",
            autocompletion=completion.workloads,
        ),
    ],
    topology: TopologyIfAny = None,
    gpus: GpusIfAny = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the plan, as JSON.")] = Path(
        "plan.json"
    ),
    family: FamilyIfSeveral = "",
    variant: Annotated[
        str,
        typer.Option(help="The variant to plan with.", autocompletion=completion.variant),
    ] = "",
    seconds: Annotated[
        float | None, typer.Option(help="Seconds that the search may take, if it can be limited.")
    ] = None,
    previous: Annotated[
        Path | None,
        typer.Option("--from", help="The plan that tables are placed by now, to move little of."),
    ] = None,
    move_gib: Annotated[
        float | None, typer.Option(help="GiB of it that may move at most; any by default.")
    ] = None,
    lost_ranks: Annotated[
        str, typer.Option(help="Its ranks that went away, as 8-15,20; else the last ones.")
    ] = "",
    pareto: Annotated[
        Path | None,
        typer.Option(help="Folder for plans that move more and more, with a table and a figure."),
    ] = None,
    all_ranks: Annotated[bool, typer.Option("--all-ranks", help="Show every rank.")] = False,
    json: Json = "",
    fix: Annotated[
        int | None,
        typer.Option("--fix", min=1, help="If no plan fits, plan with this one of the changes."),
    ] = None,
) -> None:
    """Plan with the best variant, and write the plan as JSON.

    Shows the load of each rank, a proven limit on the gap to the best plan, and what the plan of
    the captured planner, or of the released library, costs. With --from, the new plan moves few
    bytes of the previous one.
    """
    if seconds is not None:
        check_seconds("--seconds", seconds)
    near = _near(previous, move_gib, lost_ranks, pareto)
    workload = WorkloadSpec.parse(tables)
    found = able_family(found_registry(), family, "planning", "plan", workload)
    placed = placed_with_note(found, workload, topology, gpus)
    request = Request(found, workload, placed, (variant,) if variant else ())
    if near is not None and pareto is not None:
        if variant:
            raise UsageError("--pareto takes no --variant: the family's choice plans.")
        _write_front(request, near, seconds, pareto)
        return
    check_writable(out)
    check_writable(file_named(json))
    try:
        with stage_display() as begins:
            made = make_plan(request, seconds, near, begins=begins)
    except InfeasibleDecision as error:
        made = _fixed(request, error, fix, json)
    write(out, to_json(made.document, indent=2) + "\n")
    if json != "-":
        display.show(shown(made, all_ranks))
    if made.changes:
        messages.print(f"This plan needs a change: {' '.join(made.changes)}")
    if near is not None and made.moved_gib is not None and made.moved_gib > near.gib:
        warn(
            f"No plan was found that moves at most {near.gib:.4g} GiB; this one moves "
            f"{made.moved_gib:.4g} GiB, the least that was found."
        )
    messages.print(f"Wrote {out}")
    try:
        with stage_display() as begins:
            today = baseline(request, made, begins)
    except KeyboardInterrupt:
        raise InterruptedCommand(f"the plan is kept in {out}.") from None
    planning, whole = (duration(s, trim=True) for s in (made.planning_s, seconds_since_start()))
    took = f"Planned in {planning}; the whole command took {whole}."
    gain = gain_shown(made, today) if today is not None else ""
    show_or_write(json, document(made, today, out), Text("\n".join(filter(None, (gain, took)))))


def _fixed(request: Request, error: InfeasibleDecision, fix: int | None, json: str) -> Planned:
    """Return the plan of change number `fix`; without a number, show all changes and exit with 1.

    Raises UsageError if there is no such change.
    """
    if fix is None:
        show_remedies(request, error, json)
        raise typer.Exit(1)
    began = seconds_since_start()
    changes = _remedies(request, error).remedies
    if fix > len(changes):
        raise UsageError(f"There is no change {fix}: {len(changes)} would be enough.")
    return fixed(request, changes[fix - 1], seconds_since_start() - began)


def show_remedies(request: Request, error: InfeasibleDecision, json: str = "") -> None:
    """Print an error, and what helps."""
    found = _remedies(request, error)
    unit = request.family.qualities[0].unit
    show_or_write(json, remedies_document(error, found), remedies_shown(found, unit))


def _remedies(request: Request, error: InfeasibleDecision) -> Remedies[Any, Any]:
    messages.print(str(error), style="red")
    with stage_display() as begins:
        return find_remedies(request, begins=begins)


def _near(
    previous: Path | None, move_gib: float | None, lost_ranks: str, pareto: Path | None
) -> Near | None:
    """Return the previous plan, the limit on moved GiB and the lost ranks; None without --from.

    Raises UsageError if the options exclude each other."""
    if previous is None:
        given = {"--move-gib": move_gib, "--lost-ranks": lost_ranks or None, "--pareto": pareto}
        for option, value in given.items():
            if value is not None:
                raise UsageError(f"{option} needs --from, the plan that tables are placed by now.")
        return None
    if move_gib is not None and not 0 <= move_gib < math.inf:
        raise UsageError(f"--move-gib must be a number of GiB of at least 0, not {move_gib:g}.")
    if move_gib is not None and pareto is not None:
        raise UsageError("--pareto takes no --move-gib: it has plans for many.")
    lost: set[int] = set()
    for part in lost_ranks.split(",") if lost_ranks else ():
        ends = _RANKS.fullmatch(part.strip())
        first, last = (int(end or ends[1]) for end in ends.groups()) if ends else (1, 0)
        if first > last:
            raise UsageError(f"--lost-ranks must be like 8-15,20, not '{lost_ranks}'.")
        lost.update(range(first, last + 1))
    return Near(previous, math.inf if move_gib is None else move_gib, frozenset(lost))


def _write_front(request: Request, near: Near, seconds: float | None, folder: Path) -> None:
    """Write plans that move increasing numbers of bytes into a folder, with table and figure."""
    from reports.family.figures import draw_front

    check_folder(folder)
    made: list[Planned] = []
    with stage_display() as begins:
        for planned in front(request, near, seconds, begins):
            made.append(planned)
            write(folder / f"plan-{len(made)}.json", to_json(planned.document, indent=2) + "\n")
    if not made:
        raise ShardbenchError("No plan was found.")
    drawing = draw_front(made)
    write(folder / "front.svg", drawing.svg)
    write(folder / "front.csv", drawing.data.to_csv(index=False))
    display.show(front_shown(made[0].cell, drawing.data))
    messages.print(f"Wrote {len(made)} plans, front.csv and front.svg into {folder}")
    print(f"The whole command took {duration(seconds_since_start(), trim=True)}.")
