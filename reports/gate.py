"""The text of a gate's verdict: a headline, a row for each deviation, and a Markdown page."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.gate.expectations import Value
from harness.gate.judging import Deviation, GateVerdict, Judged, Kind
from harness.model.errors import printable
from harness.model.ids import CellId, ProblemId
from reports.core.escaping import code as in_code
from reports.core.formatting import MISSING, interval, number, plural
from reports.core.table import as_markdown, code, table_of

UNFINISHED = "## Error: the gate did not finish, so nothing is judged\n"

_MOST_ROWS = 500

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


@dataclass(frozen=True, slots=True)
class DeviationText:
    """The texts of one deviation: a row of the verdict's table."""

    cell: str
    what: str
    expected: str
    measured: str
    change: str


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


def rows(judged: Iterable[Judged]) -> Iterator[DeviationText]:
    """Yield a row for each deviation."""
    for each in judged:
        for deviation in each.deviations:
            kind, dot, name = deviation.what.partition(".")
            what = name if dot else kind
            if what == "ratio" and each.measured is not None:
                what = f"ratio over {each.measured.against}"
            yield DeviationText(printable(str(each.cell)), printable(what), *texts(deviation))


def texts(deviation: Deviation) -> tuple[str, str, str]:
    """Return the value before, the value now, and the change, e.g. `worse, up 2 times`.

    The values are rounded, or exact if rounding would make different values look equal.
    """
    values = deviation.expected, deviation.measured
    before, now = map(_text, values)
    if before == now and values[0] != values[1]:
        before, now = map(str, values)
    parts = [_WORDS[deviation.kind][2], _step(*values), printable(deviation.note.rstrip("."))]
    change = ", ".join(filter(None, parts))
    return before, now, change if len(change) <= 300 else f"{change[:300]}..."


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
    compare = ["shardbench", "compare", family, *where, "--variants", variant, "--details"]
    if against:
        compare[-1:-1] = ["--against", against]
    profile = ["shardbench", "profile", family, variant, *where]
    return tuple(printable(shlex.join(command)) for command in (compare, profile))


def markdown(
    verdict: GateVerdict, said: Sequence[str], steps: Sequence[tuple[str, Sequence[str]]]
) -> str:
    """Return the verdict: headline, deviating cells, notes, next steps, and the other cells folded.

    `said` are the notes; `steps` are next steps, each a text with its commands.
    Texts from files are written as code, where they can be neither HTML nor a link.
    """
    blocks = [f"## {headline(verdict).rstrip('.')}"]
    found = list(rows(verdict.judged))
    if found:
        columns = map(code, DeviationText.__slots__)
        blocks.append(as_markdown(table_of(found[:_MOST_ROWS], *columns)))
        if len(found) > _MOST_ROWS:
            blocks.append(f"{len(found) - _MOST_ROWS:,} more differences are left out.")
    blocks += [in_code(text) for text in said]
    for text, commands in steps:
        blocks.append("\n".join([text, *(f"- {in_code(command)}" for command in commands)]))
    as_expected = [judged for judged in verdict.judged if judged.kind is None]
    table = as_markdown(
        table_of(
            as_expected[:_MOST_ROWS],
            code("cell", lambda each: printable(str(each.cell))),
            code("status", lambda each: each.measured.status),
            code("decision", lambda each: each.measured.decision or ""),
            code("ratio", lambda each: _text(each.measured.ratio and each.measured.ratio.interval)),
            code("expected ratio", lambda each: _text(each.expected and each.expected.ratio)),
        )
    )
    if as_expected and found:
        title = f"<summary>{len(as_expected):,} as expected</summary>"
        table = f"<details>\n{title}\n\n{table}\n\n</details>"
    return "\n\n".join([*blocks, *[table] * bool(as_expected)]) + "\n"


def failure_markdown(reason: str) -> str:
    """Return Markdown that reports a failure of the gate itself, with the reason."""
    return f"## Error: the gate failed, so nothing is judged\n\n{in_code(printable(reason))}\n"
