"""A gate's verdict as text and as Markdown: a headline, and a row for each deviation."""

import shlex
from collections.abc import Iterable, Iterator, Sequence

from harness.gate.expectations import Value
from harness.gate.judging import Deviation, GateVerdict, Judged, Kind
from harness.model.errors import printable
from harness.model.ids import CellId, ProblemId
from reports.core.columns import cell_table
from reports.core.formatting import MISSING, code as in_code, interval, number, plural
from reports.core.table import Entry, Table, Tone, as_markdown, code, table_of

Steps = Sequence[tuple[str, Sequence[str]]]
"""Next steps: each is a text, and the commands for it."""

_MOST_ROWS = 500
_LONGEST = 300
_TONES: dict[Kind, Tone] = {"regression": "bad", "missing": "bad", "win": "good"}

# For each kind of deviation: its name, a phrase after a number of cells, and a word for a change.
_WORDS: dict[Kind, tuple[str, str, str]] = {
    "not measured": ("Error", "could not be measured", "not measured"),
    "regression": ("Regression", "worse than expected", "worse"),
    "missing": ("Missing", "not there as expected", "missing"),
    "changed": ("Changed", "other than expected", "changed"),
    "win": ("Win", "better than expected", "better"),
    "new": ("New", "not expected yet", "new"),
    "inconclusive": ("Inconclusive", "perhaps slower than expected", "perhaps worse"),
}


def headline(verdict: GateVerdict) -> str:
    """Return the verdict in one sentence, the worst kind of deviation first."""
    total = len(verdict.judged)
    kinds = [kind for kind in _WORDS if verdict.count(kind)]
    if not kinds:
        return f"As expected: all {total} cells." if total > 1 else "As expected: the only cell."
    name, clause, _ = _WORDS[kinds[0]]
    amount = verdict.count(kinds[0])
    verb = "" if kinds[0] == "not measured" else "is " if amount == 1 else "are "
    parts = [f"{amount:,} of {plural(total, 'cell')} {verb}{clause}"]
    parts += [f"{verdict.count(kind):,} {_WORDS[kind][1]}" for kind in kinds[1:]]
    return f"{name}: {', '.join(parts)}."


def deviations(judged: Iterable[Judged]) -> list[tuple[Judged, Deviation]]:
    """Return the deviations of cells, each with its cell."""
    return [(cell, deviation) for cell in judged for deviation in cell.deviations]


def table_of_deviations(
    deviations: Iterable[tuple[Judged, Deviation]], before: str = "expected", now: str = "measured"
) -> Table:
    """Return a table with a row for each deviation; `before` and `now` head its two values."""
    return table_of(
        deviations,
        code("cell", lambda row: printable(str(row[0].cell))),
        code("what", lambda row: _what(*row)),
        code(before, lambda row: _values(row[1])[0]),
        code(now, lambda row: _values(row[1])[1]),
        code("change", lambda row: Entry(_change(row[1]), tone=_TONES.get(row[1].kind, ""))),
    )


def lines(judged: Iterable[Judged]) -> Iterator[str]:
    """Yield the deviations as lines of text, below a line for each cell."""
    for cell in judged:
        if cell.deviations:
            yield printable(str(cell.cell))
        for deviation in cell.deviations:
            before, now = _values(deviation)
            yield f"  {_what(cell, deviation)}: {now}, expected {before}: {_change(deviation)}"


def _what(judged: Judged, deviation: Deviation) -> str:
    group, _, name = deviation.what.partition(".")
    if group == "ratio" and judged.measured is not None:
        name = f"ratio over {judged.measured.against}"
    return printable(name or group)


def _values(deviation: Deviation) -> tuple[str, str]:
    """Return the expected and the measured value, exact if rounding makes them look equal."""
    before, now = _text(deviation.expected), _text(deviation.measured)
    if before == now and deviation.expected != deviation.measured:
        return printable(str(deviation.expected)), printable(str(deviation.measured))
    return before, now


def _change(deviation: Deviation) -> str:
    """Return what a change means, its direction and size, and a note: `worse, up 2 times`."""
    step = _step(deviation.expected, deviation.measured)
    note = printable(deviation.note.rstrip("."))
    change = ", ".join(filter(None, [_WORDS[deviation.kind][2], step, note]))
    return change if len(change) <= _LONGEST else f"{change[:_LONGEST]}..."


def _text(value: Value) -> str:
    if value is None:
        return MISSING
    if isinstance(value, tuple):
        low, high = map(float, value)
        return f"from {number(low)}" if high == float("inf") else interval(low, high)
    return printable(value) if isinstance(value, str) else number(value)


def _step(before: Value, now: Value) -> str:
    """Return the direction and the size of the step between two numbers, else ""."""
    if not isinstance(before, int | float) or not isinstance(now, int | float) or before == now:
        return ""
    direction = "up" if now > before else "down"
    factor = max(before, now) / min(before, now) if before > 0 and now > 0 else float("inf")
    if factor == float("inf"):
        return direction
    if factor >= 2:
        return f"{direction} {number(float(factor), trim=True)} times"
    return f"{direction} {number(abs(now / before - 1) * 100, trim=True)} %"


def notes(verdict: GateVerdict, renamed: Iterable[tuple[CellId, CellId]] = ()) -> list[str]:
    """Return notes that may explain deviations: changed versions, and `renamed` (old, new) ids."""
    said = []
    if verdict.versions:
        changes = (
            f"{name} {before or 'not there'} → {now or 'not there'}"
            for name, (before, now) in verdict.versions.items()
        )
        said.append(
            f"Measured with other versions than the expectations were made with: "
            f"{', '.join(changes)}. Decisions and counters may change with them."
        )
    said += [
        f"{old} is {new} now: the file that it is given by has changed." for old, new in renamed
    ]
    return [printable(text) for text in said]


def look_closer(judged: Judged) -> tuple[str, ...]:
    """Return the `shardbench compare` and `shardbench profile` commands that examine a cell."""
    family, variant, problem = judged.cell.family, judged.cell.variant, judged.cell.problem
    against = judged.measured.against if judged.measured else ""
    if judged.expected is not None:
        against = judged.expected.against or against
        if judged.expected.given:
            problem = ProblemId.parse(judged.expected.given)
    where = ["-w", str(problem.workload), "-t", problem.topology, "-n", str(problem.gpus)]
    variants = ["--variants", variant, *(["--against", against] if against else [])]
    compare = ["shardbench", "compare", family, *where, *variants, "--details"]
    profile = ["shardbench", "profile", family, variant, *where]
    return tuple(printable(shlex.join(command)) for command in (compare, profile))


def plain(verdict: GateVerdict, said: Sequence[str], steps: Steps) -> str:
    """Return the verdict as text: headline, deviating cells, notes and next steps."""
    shown = list(lines(verdict.judged))
    if len(shown) > _MOST_ROWS:
        shown[_MOST_ROWS:] = [f"{len(shown) - _MOST_ROWS:,} more lines are left out."]
    blocks = [headline(verdict), "\n".join(shown), *said]
    blocks += ["\n  ".join([text, *commands]) for text, commands in steps]
    return "\n\n".join(filter(None, blocks)) + "\n"


def markdown(verdict: GateVerdict, said: Sequence[str], steps: Steps) -> str:
    """Return the verdict in Markdown, with the cells that are as expected folded below.

    `said` are the notes. Texts from files are written as code, where they can be neither HTML nor
    a link.
    """
    blocks = [f"## {headline(verdict).rstrip('.')}"]
    rows = deviations(verdict.judged)
    if rows:
        blocks.append(as_markdown(table_of_deviations(rows[:_MOST_ROWS])))
    if len(rows) > _MOST_ROWS:
        blocks.append(f"{len(rows) - _MOST_ROWS:,} more differences are left out.")
    blocks += [in_code(text) for text in said]
    for text, commands in steps:
        blocks.append("\n".join([text, *(f"- {in_code(command)}" for command in commands)]))
    cells = [judged.measured for judged in verdict.judged if judged.measured and not judged.kind]
    name = code("cell", lambda cell: printable(str(cell.id)))
    table = as_markdown(cell_table(cells[:_MOST_ROWS], name, "outcome", "ratio", "reach"))
    if cells and rows:
        title = f"<summary>{len(cells):,} as expected</summary>"
        table = f"<details>\n{title}\n\n{table}\n\n</details>"
    return "\n\n".join([*blocks, *[table] * bool(cells)]) + "\n"


def failure_markdown(reason: str) -> str:
    """Return Markdown that reports a failure of the gate itself, with the reason."""
    return f"## Error: the gate failed, so nothing is judged\n\n{in_code(printable(reason))}\n"
