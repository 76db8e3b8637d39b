"""Blocks of Markdown drawn from the record; `make figures` writes them into README and docs.

Each function returns the text of a block. Problems are written `family@workload/topology:gpus`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from shlex import quote
from statistics import median, quantiles

from harness.contract.registry import installed_statements
from harness.measuring.statements import Figure, Reading, counts, speedup
from harness.model.cell import Cell
from harness.model.errors import UsageError
from harness.model.files import read_file
from harness.model.ids import CellId, ProblemId
from harness.model.statement import Statement
from harness.suites.record import Record
from reports.core.formatting import MISSING, count, factor, gap, number, with_interval
from reports.core.frames import read_results
from reports.core.table import Entry, as_markdown, code, numbers, table_of, text
from reports.family.data import FamilyView, families
from reports.family.growth import Series
from reports.statements import (
    System,
    claim_readings,
    factor_text,
    provenance as provenance_of,
    published_text,
    reading_text,
    systems,
    time_text,
    work_text,
)

FOLDER = Path("record")


@cache
def record() -> Record:
    """Return the committed record."""
    return Record.read(FOLDER)


@cache
def _cells() -> dict[CellId, Cell]:
    return record().cells()


@cache
def family_views() -> dict[str, FamilyView]:
    """Return the families of the record by name, as reports show them."""
    return {family.name: family for family in families(read_results(record().cells_file))}


def cell(name: str) -> Cell:
    """Return a recorded cell by its id; raises UsageError if there is none."""
    found = _cells().get(CellId.parse(name))
    if found is None:
        raise UsageError(f"The record has no cell '{name}'.")
    return found


def on(problem: str, variants: Sequence[str] = ()) -> list[Cell]:
    """Return the recorded cells of a problem, all or those of some variants, in this order."""
    family, _, name = problem.partition("@")
    wanted = ProblemId.parse(name)
    found = {c.variant: c for c in _cells().values() if c.family == family and c.problem == wanted}
    if missing := [variant for variant in variants if variant not in found]:
        raise UsageError(f"The record has no cell of {', '.join(missing)} on '{problem}'.")
    return [found[variant] for variant in variants] if variants else list(found.values())


@cache
def statements() -> list[Statement]:
    """Return the statements of all families, in the order of reports."""
    return [found for declared in installed_statements().values() for found in declared]


@cache
def recorded_systems() -> list[System]:
    """Return what the record says of each system."""
    return systems(statements(), _cells())


def overview() -> str:
    """Return README's table: published, reproduced, left today, and ours against today."""
    return as_markdown(
        table_of(
            recorded_systems(),
            text("system", lambda row: row.name),
            text("published", lambda row: published_text(row.claim.statement)),
            text("reproduced here", lambda row: reading_text(row.claim)),
            code("on", lambda row: row.claim.pair.problem),
            text("repeated today", work_text),
            text("ours against today's release", lambda row: reading_text(row.times)),
            code("on", lambda row: row.times.pair.problem),
        )
    )


def claims() -> str:
    """Return the table of all claims with their verdicts."""

    def name(row: Reading) -> Entry:
        repository, _, number = row.statement.source.partition("#")
        return Entry(row.statement.name, link=f"https://github.com/{repository}/pull/{number}")

    def conditions(row: Reading) -> str:
        return row.statement.published.conditions if row.statement.published else MISSING

    def counted(row: Reading) -> str:
        work = counts(row.statement, _cells())
        if work is None or work.after is None:
            return MISSING
        name = row.statement.counter.replace("_", " ")
        return f"{name} {count(work.before)} → {count(work.after)}"

    return as_markdown(
        table_of(
            claim_readings(statements(), _cells()),
            text("claim", name),
            text("published", lambda row: published_text(row.statement)),
            text("recorded", reading_text),
            text("verdict", lambda row: row.outcome),
            text("published for", conditions),
            code("recorded for", lambda row: row.pair.problem),
            text("counted", counted),
        )
    )


def remarks() -> str:
    """Return the remarks on claims and systems as a list."""
    remarked = [
        found for use in ("claim", "headline") for found in statements() if found.use == use
    ]
    return "\n".join(f"- **{found.name}.** {found.remark}" for found in remarked if found.remark)


def highlights() -> tuple[str, ...]:
    """Return the ids of the cells that the record declares to be shown first."""
    return record().declared.highlights


def gains(*names: str) -> str:
    """Return a row for each cell: its speed-up over the variant that it was compared with."""
    return gains_table([cell(name) for name in names], _cells())


def gains_table(rows: Sequence[Cell], recorded: Mapping[CellId, Cell]) -> str:
    """Return the table of `gains` for some of the recorded cells."""

    def command(found: Cell) -> str:
        problem = found.problem
        options = f"-w {quote(str(problem.workload))} -t {problem.topology} -n {problem.gpus}"
        return f"shardbench compare {found.family} {options} --against {found.against}"

    def faster(found: Cell) -> Figure | None:
        return speedup(recorded.get(CellId(found.family, found.against, found.problem)), found)

    decides = {"same": "the same", "own": "on its own", "different": "different"}
    return as_markdown(
        table_of(
            rows,
            code("command", command),
            code("variant", lambda row: row.variant),
            numbers("times as fast", lambda row: Entry(factor_text(faster(row)))),
            text("decides", lambda row: decides.get(row.decision or "", MISSING)),
        )
    )


def cells(
    problem: str, *figures: str, variants: Sequence[str] = (), baseline: str | None = None
) -> str:
    """Return a row for each variant on a problem: time, speed-up, and named figures.

    Figures are qualities or counters of the cells. The speed-up is over `baseline`, by default over
    the variant that the cells were compared with.
    """

    def value(name: str) -> Callable[[Cell], Entry]:
        def entry(found: Cell) -> Entry:
            values = {**found.counters, **found.quality}
            if found.bound:
                values.setdefault("gap", found.bound.gap(found.quality))
            held = values.get(name)
            if held is None:
                return Entry(MISSING)
            return Entry(gap(held) if name == "gap" else number(held), float(held))

        return entry

    found = on(problem, variants)
    base = baseline or found[0].against
    (first,) = on(problem, [base])

    def faster(row: Cell) -> Entry:
        return Entry(MISSING if row is first else factor_text(speedup(first, row)))

    return as_markdown(
        table_of(
            found,
            code("variant", lambda row: row.variant),
            numbers("CPU time", lambda row: Entry(time_text(row) if row.cpu_s else row.status)),
            numbers(f"times as fast as {base}", faster),
            *(numbers(name.replace("_", " "), value(name)) for name in figures),
        )
    )


def times_by_size(problem: str, sizes: Sequence[int], variants: Mapping[str, str]) -> str:
    """Return a row for each variant, named by `variants`: the CPU time of a call on each size.

    `problem` has `{}` in place of the size, which is a number of tables.
    """

    def time(size: int) -> Callable[[str], Entry]:
        return lambda variant: Entry(time_text(on(problem.format(size), [variant])[0]))

    columns = (numbers(f"{size} tables", time(size)) for size in sizes)
    return as_markdown(table_of(variants, text("CPU time of a plan", variants.get), *columns))


def _commits(problem: str) -> dict[str, Cell]:
    """Return the cells of recorded commits on a problem, `library@problem`, by label."""
    library, _, name = problem.partition("@")
    wanted = ProblemId.parse(name)
    return {
        label: _cells()[CellId(library, commit, wanted)]
        for declared in record().declared.commits
        if declared.library == library and ProblemId.parse(declared.problem) == wanted
        for label, commit in declared.commits.items()
    }


def releases(problem: str) -> str:
    """Return a row per release of a library: calls of each part, with growth, and CPU time."""
    found = _commits(problem)
    first = next(iter(found.values()))

    def calls(part: str) -> Callable[[tuple[str, Cell]], Entry]:
        def entry(row: tuple[str, Cell]) -> Entry:
            made = row[1].counters[f"{part}_calls"]
            return Entry(f"{count(made)} ({factor(made / first.counters[f'{part}_calls'])})", made)

        return entry

    return as_markdown(
        table_of(
            found.items(),
            code("release", lambda row: row[0]),
            text("date", lambda row: str(row[1].facts["date"])),
            numbers("calls of enumerate (to the first)", calls("enumerate")),
            numbers("calls of the search (to the first)", calls("search")),
            numbers("objects copied", lambda row: row[1].counters["objects_copied"], count),
            numbers("CPU time of a plan", lambda row: Entry(time_text(row[1]))),
        )
    )


def steps(problem: str, pull_requests: str) -> str:
    """Return a row per pair of commits labelled "before X" and "X": factors of calls, decision.

    `pull_requests` is the address of a pull request, with `{number}` in it.
    """
    found = _commits(problem)
    pairs = [
        (found[before], found[label]) for label in found if (before := f"before {label}") in found
    ]
    pairs.sort(key=lambda pair: str(pair[1].facts["date"]))

    def calls(part: str) -> Callable[[tuple[Cell, Cell]], Entry]:
        def entry(row: tuple[Cell, Cell]) -> Entry:
            before, after = (cell.counters[f"{part}_calls"] for cell in row)
            return Entry(f"{after / before:.2f}", after / before)

        return entry

    def title(row: tuple[Cell, Cell]) -> Entry:
        number, name = str(row[1].facts["pull_request"]), str(row[1].facts["title"])
        return Entry(name, link=pull_requests.format(number=number) if number else "")

    def decides(row: tuple[Cell, Cell]) -> str:
        before, after = row
        if before.fingerprint != after.fingerprint:
            return "another plan"
        return "the same" if before.quality == after.quality else "another estimate"

    return as_markdown(
        table_of(
            pairs,
            code("commit", lambda row: row[1].variant[:9]),
            text("date", lambda row: str(row[1].facts["date"])),
            numbers("enumerate", calls("enumerate")),
            numbers("search", calls("search")),
            text("decides", decides),
            text("title", title),
        )
    )


def growth(family: str) -> str:
    """Return the growth of planning time with size: sizes, times, and exponents."""

    def sizes(row: Series) -> str:
        sizes = [point.size for point in row.measured]
        return f"{count(min(sizes))} to {count(max(sizes))} {row.size_name}"

    def exponent(row: Series) -> str | None:
        return with_interval(*row.fit, partial(number, digits=2)) if row.fit else None

    return as_markdown(
        table_of(
            family_views()[family].series,
            code("problems", "sweep"),
            code("variant", "variant"),
            text("sizes", sizes),
            numbers("exponent of CPU time", exponent),
        )
    )


def gaps() -> str:
    """Return the distribution of gaps over the random problems of the record, as sentences."""
    found = [c for c in _cells().values() if c.problem.workload.name == "mixture"]
    planned = sorted(c.quality["gap"] for c in found if "gap" in c.quality)
    middle, tenth = gap(median(planned)), gap(quantiles(planned, n=10)[-1])
    return (
        f"Of {len(found)} random problems, {len(planned)} have a plan and "
        f"{len(found) - len(planned)} have none. The median gap is {middle}, nine in ten are below "
        f"{tenth}, and the worst is {gap(planned[-1])}."
    )


def table(name: str) -> str:
    """Return a table that a script of the record printed; raises UsageError if there is none."""
    return read_file(record().table_of(name)).decode().rstrip("\n")


def provenance() -> str:
    """Return one sentence on the machine, the versions, the days and the duration."""
    return provenance_of(record())
