"""The record next to results of this machine: where it was made, its pages, disagreements."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from harness.measuring.statements import Cells
from harness.model.cell import Cell, Ratio
from harness.model.files import read_file
from harness.suites.record import Record, profile_name
from reports.core.formatting import factor_with_interval, listing, names, number, percent, plural
from reports.core.page import Finding
from reports.family.flame_links import FlamePage, FlamePair


def read_record(folder: Path | None) -> Record | None:
    """Read the record in a folder; None if it has no results. Raises UsageError."""
    if folder is None or not (folder / "suite.toml").exists():
        return None
    record = Record.read(folder)
    return record if record.runs() else None


def provenance(record: Record) -> str:
    """Return one sentence: machine, versions, commit of the code, days, and the whole duration."""
    runs = record.runs().values()
    environments = [run.environment for run in runs]
    last = max(environments, key=lambda environment: environment.started or "")
    days = sorted({(environment.started or "")[:10] for environment in environments})
    versions = [f"{name} {version}" for name, version in islice(last.packages.items(), 2)]
    known = list(dict.fromkeys(run.commit for run in runs if run.commit))
    commits = f", by shardbench {names(known)}" if known else ""
    hours = sum(run.seconds for run in runs) / 3600
    lanes = "; long ones run two at a time" if any(s.once for s in record.declared.study) else ""
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return (
        f"Recorded on {when}: {last.cpu}, {last.cores} cores, {number(last.memory_gib or 0.0)} "
        f"GiB, {', '.join([f'Python {last.python}', *versions])}. All parts together took "
        f"{number(hours, 2)} h{commits}{lanes}."
    )


def gpus(folder: Path, command: str = "`make gpu`") -> str:
    """Return a sentence on the GPUs with results in a record's folder."""
    measured = dict.fromkeys(record.gpu for record in Record.of_gpus(folder / "gpu"))
    if not measured:
        return f"Nothing was measured on a GPU so far; {command} does it."
    return f"On a GPU ({listing([*measured])}), only the suite of {command} was measured."


def recorded_pages(record: Record, family: str) -> list[FlamePage]:
    """Return the recorded pages of flame graphs of a family."""
    runs, pages = record.runs(), []
    for profile in record.declared.profile:
        path = record.page_of(profile)
        run = runs.get(profile_name(path))
        if profile.family == family and run and path.exists():
            *before, variant = profile.variants
            pair = FlamePair(profile.problem, variant, "".join(before))
            made = f"recorded {(run.environment.started or '')[:10]}"
            pages.append(FlamePage(pair, path.name, read_file(path), made))
    return pages


def compared(cells: Iterable[Cell], recorded: Cells) -> list[tuple[Cell, Ratio, Ratio]]:
    """Return the cells with a ratio here and in the record, to the same variant, and these two."""
    both = ((cell, recorded.get(cell.id)) for cell in cells)
    return [
        (cell, cell.ratio, other.ratio)
        for cell, other in both
        if other and other.against == cell.against and cell.ratio and other.ratio
        if min(cell.ratio.pairs, other.ratio.pairs) >= 2  # others have no interval
    ]


def are_apart(ratio: Ratio, other: Ratio) -> bool:
    """Return whether the intervals of two ratios do not overlap."""
    return ratio.high < other.low or other.high < ratio.low


def agreement(cells: Iterable[Cell], recorded: Cells) -> str:
    """Return a sentence on how many ratios differ from the record; "" if none can."""
    ratios = compared(cells, recorded)
    if not ratios:
        return ""
    apart = [(a.value, b.value) for _, a, b in ratios if are_apart(a, b)]
    by_up_to = f", by up to {percent(max(max(p) / min(p) for p in apart) - 1)}" if apart else ""
    return (
        f"Of {plural(len(ratios), 'ratio')} that are also in the record of another day or machine, "
        f"{len(apart) or 'none'} are outside of its intervals{by_up_to}."
    )


def disagreements(cells: Iterable[Cell], recorded: Cells) -> Iterator[Finding]:
    """Yield a finding for each ratio whose interval is apart from the recorded one."""
    for cell, ratio, other in compared(cells, recorded):
        if are_apart(ratio, other):
            here, there = (
                factor_with_interval(1 / found.value, 1 / found.high, 1 / found.low)
                for found in (ratio, other)
            )
            yield Finding(
                "record",
                f"The record differs: `{cell.variant}` on `{cell.problem}` is {here} as fast as "
                f"`{cell.against}` here, and {there} there.",
            )
