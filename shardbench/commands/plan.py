"""`shardbench plan`: plan with the best variant, and write a plan file for a job."""

import math
import re
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from harness.contract import Remedies
from harness.measuring.request import Request
from harness.model.cell import RankTable
from harness.model.errors import InfeasibleDecision, ShardbenchError, UsageError
from harness.model.ids import WorkloadSpec
from harness.planning.plan import (
    Baseline,
    Near,
    Planned,
    baseline,
    find_remedies,
    fixed,
    front,
    plan as make_plan,
)
from harness.topologies.lookup import placed_on
from reports.core.formatting import figure, gap, number, seconds as duration
from reports.core.table import Entry, bar, code, numbers, table_of
from reports.core.terminal import as_terminal
from shardbench import completion, display, options, problems
from shardbench.command import InterruptedCommand, command
from shardbench.progress import progress_display

_RANKS = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_MOST_RANKS, _AT_EACH_END = 64, 8
_REMEDY = ("name", "unit", "now", "sufficient", "proven", "gap", "changes", "rating")


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
@options.topology
@options.gpus
@click.option(
    "--out", "-o", type=options.OutFile(), default="plan.json", help="File for the plan, as JSON."
)
@options.judge
@options.family
@click.option(
    "--variant", default="", help="The variant to plan with.", shell_complete=completion.variants
)
@click.option("--seconds", type=options.POSITIVE, help="Seconds that the search may take.")
@click.option("previous", "--from", type=options.PATH, help="The plan in force, to move little of.")
@click.option("--move-gib", type=options.Number(min=0), help="GiB of it that may move at most.")
@click.option(
    "--lost-ranks", default="", help="Its ranks that went away, as 8-15,20; else the last ones."
)
@click.option("--pareto", type=options.PATH, help="Folder for plans that move more and more.")
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
    machine: str,
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
        raise UsageError("--move-gib, --lost-ranks and --pareto need --from, the plan in force.")
    if pareto and move_gib is not None:
        raise UsageError("--pareto takes no --move-gib: its plans move more and more.")
    workload = WorkloadSpec.parse(tables)
    able = problems.able_family(options.found_registry(), family, "planning", "plan", workload)
    placed = problems.judged(able, placed_on(able, workload, topology, gpus), machine)
    request = Request(able, workload, placed, (variant,) if variant else ())
    if near and pareto:
        _write_front(request, near, seconds, pareto)
        return
    try:
        with progress_display() as progress:
            made = make_plan(request, seconds, near, begins=progress.stage)
    except InfeasibleDecision as error:
        made = plan_with_remedy(request, error, fix, json)
    options.write_json(out, made.document)
    if json != "-":
        display.show(_shown(made, all_ranks))
    if made.changes:
        options.messages.print(f"This plan needs a change: {' '.join(made.changes)}")
    if near and made.moved_gib is not None and made.moved_gib > near.gib:
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
    sentences = [f"Planned in {duration(made.planning_s, trim=True)}."]
    if today is not None:
        sentences.insert(0, _gain(made, today))
    options.show_or_write(json, _document(made, today, out), Text("\n".join(sentences)))


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


def plan_with_remedy(
    request: Request, error: InfeasibleDecision, fix: int | None = None, json: str = ""
) -> Planned:
    """Print why no plan fits, and plan with change number `fix` of those that make one possible.

    Without a number, shows all changes and exits with 1. Raises UsageError for an unknown number.
    """
    options.messages.print(str(error), style="red")
    began = time.monotonic()
    with progress_display() as progress:
        remedies = find_remedies(request, begins=progress.stage)
    if fix is None:
        shown = _remedies_shown(remedies)
        options.show_or_write(json, _remedies_document(error, remedies), shown)
        raise click.exceptions.Exit(1)
    changes = remedies.remedies
    if fix > len(changes):
        raise UsageError(f"There is no change {fix}: {len(changes)} would be enough.")
    return fixed(request, changes[fix - 1], time.monotonic() - began)


def _remedies_document(reason: Exception, remedies: Remedies[Any, Any]) -> dict[str, Any]:
    return {
        "plan": None,
        "reason": str(reason),
        "causes": list(remedies.causes),
        "remedies": [
            {name: getattr(remedy, name) for name in _REMEDY} for remedy in remedies.remedies
        ],
        "findings": list(remedies.findings),
    }


def _remedies_shown(remedies: Remedies[Any, Any]) -> RenderableType:
    """Render the causes, the remedies, and the findings."""
    parts = [display.listed(remedies.causes)] if remedies.causes else []
    if remedies.remedies:
        title = "Each of these changes is enough alone; `shardbench plan --fix N` plans with it:"
        changes = (remedy.sentence for remedy in remedies.remedies)
        parts += [Text(title, style="bold"), display.listed(changes, "{}.")]
    return Group(*parts, *[display.listed(remedies.findings)] * bool(remedies.findings))


def _write_front(request: Request, near: Near, seconds: float | None, folder: Path) -> None:
    """Write plans that move increasing numbers of bytes into a folder, with table and figure."""
    from reports.family.quality import draw_front

    options.check_folder(folder)
    made: list[Planned] = []
    with progress_display() as progress:
        for planned in front(request, near, seconds, progress.stage):
            made.append(planned)
            options.write_json(folder / f"plan-{len(made)}.json", planned.document)
    if not made:
        raise ShardbenchError("No plan was found.")
    drawing = draw_front(made)
    options.write(folder / "front.svg", drawing.svg)
    options.write(folder / "front.csv", drawing.data.to_csv(index=False))
    columns = [
        code(name) if name == "plan" else numbers(name, write=gap if name == "gap" else figure)
        for name in map(str, drawing.data)
    ]
    rows = drawing.data.round({"gap": 6}).to_dict("records")
    title = Text(str(made[0].cell), style="bold")
    display.show(Group(title, "", as_terminal(table_of(rows, *columns))))
    options.messages.print(f"Wrote {len(made)} plans, front.csv and front.svg into {folder}")


def _document(plan: Planned, today: Baseline | None, file: Path) -> dict[str, Any]:
    """Return a plan's figures, and the file that has the plan, as a JSON document."""
    share = plan.bound.gap(plan.quality) if plan.bound else math.nan
    return {
        "cell": str(plan.cell),
        "plan": str(file),
        "quality": dict(plan.quality),
        "unit": plan.first.unit,
        "gap": None if math.isnan(share) else share,
        "moved_gib": plan.moved_gib,
        "planning_s": plan.planning_s,
        "changes": list(plan.changes),
        "ruler": plan.ruler,
        "baseline": today and {"system": today.planner, plan.first.name: today.value},
    }


def _shown(plan: Planned, all_ranks: bool) -> RenderableType:
    """Render a plan: its quality, bound, gap and moves, and a row with a bar for each rank."""
    first, bound = plan.first, plan.bound
    unit = "" if first.unit in first.name.split("_") else first.unit
    headline = [f"{first.name} {_quantity(plan.quality[first.name], unit)}"]
    if bound and not math.isnan(share := bound.gap(plan.quality)):
        headline += [f"bound {_quantity(plan.quality[bound.name], unit)}", f"gap {gap(share)}"]
        if bound.is_reached(plan.quality):
            headline.append("proven best")
    if plan.moved_gib is not None:
        headline.append(f"moves {figure(plan.moved_gib)} GiB")
    title = Text(str(plan.cell), style="bold")
    ranks = _ranks_shown(plan.ranks, all_ranks)
    ruler = [Text(plan.ruler)] if plan.ruler else []
    return Group(title, Text(", ".join(headline)), *ruler, "", *ranks)


def _quantity(value: float, unit: str) -> str:
    return f"{number(float(value), 5, trim=True)} {unit}".rstrip()


def _ranks_shown(ranks: RankTable, all_ranks: bool) -> list[RenderableType]:
    """Return a table of the ranks; of more than 64, it has those at each end, heaviest first."""
    place = ranks.columns.index(ranks.bar)
    chosen = list(range(len(ranks.rows)))
    notes: list[RenderableType] = []
    if len(chosen) > _MOST_RANKS and not all_ranks:
        chosen.sort(key=lambda rank: -ranks.rows[rank][place])
        chosen = [*chosen[:_AT_EACH_END], *chosen[-_AT_EACH_END:]]
        notes.append(
            f"The {_AT_EACH_END} heaviest and {_AT_EACH_END} lightest of {len(ranks.rows):,} ranks;"
            " --all-ranks shows every one."
        )
    columns = [numbers("rank", 0, str)]
    for at, name in enumerate(ranks.columns):
        capacity = ranks.capacities[at]
        title = name if capacity is None else f"{name}\nof {figure(capacity)}"
        columns.append(numbers(title, at + 1, figure))
    columns.append(bar(ranks.bar, lambda row: Entry("", row[place + 1])))
    rows = ((rank, *ranks.rows[rank]) for rank in chosen)
    return [as_terminal(table_of(rows, *columns)), *notes]


def _gain(plan: Planned, today: Baseline) -> str:
    """Return a sentence that compares a plan with today's planner's, or says why it cannot."""
    if today.value is None:
        return today.reason
    unit = plan.first.unit
    ours = _quantity(plan.quality[plan.first.name], unit)
    return f"{today.planner}'s own plan: {_quantity(today.value, unit)}; this plan: {ours}."
