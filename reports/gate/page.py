"""The text of a gate's verdict: a headline, a row for each deviation, and a Markdown page."""

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.model.errors import printable
from harness.model.ids import CellId, ProblemId
from harness.suites.difference import Deviation, Kind, Value
from harness.suites.gate import GateVerdict, Judged
from reports.core.escaping import code as in_code
from reports.core.formatting import MISSING, interval, number, plural
from reports.core.table import as_markdown, code, table_of

UNFINISHED = "## Error: the gate did not finish, so nothing is judged\n"

_LONGEST = 300
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
_VERBLESS = ("not measured",)


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
    worst, *others = kinds
    name, clause, _ = _WORDS[worst]
    amount = verdict.count(worst)
    verb = "" if worst in _VERBLESS else "is " if amount == 1 else "are "
    parts = [f"{amount:,} of {plural(total, 'cell')} {verb}{clause}"]
    parts += [f"{verdict.count(kind):,} {_WORDS[kind][1]}" for kind in others]
    return f"{name}: {', '.join(parts)}."


def rows(judged: Iterable[Judged]) -> Iterator[DeviationText]:
    """Yield a row for each deviation."""
    for each in judged:
        for deviation in each.deviations:
            expected, measured = _texts(deviation.expected, deviation.measured)
            what, change = _what(each, deviation), _change(deviation)
            yield DeviationText(printable(str(each.cell)), what, expected, measured, change)


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


def _what(judged: Judged, deviation: Deviation) -> str:
    kind, dot, name = deviation.what.partition(".")
    if dot:
        return printable(name)
    if kind == "ratio" and judged.measured is not None:
        return printable(f"ratio over {judged.measured.against}")
    return kind


def _texts(expected: Value, measured: Value) -> tuple[str, str]:
    """Write two values rounded, or exactly if rounding would make different values look equal."""
    texts = _text(expected), _text(measured)
    if texts[0] == texts[1] and expected != measured:
        return str(expected), str(measured)
    return texts


def _text(value: Value) -> str:
    if value is None:
        return MISSING
    if isinstance(value, tuple):
        low, high = value
        if math.isinf(high):
            return f"from {number(float(low))}"
        return interval(float(low), float(high))
    if isinstance(value, int | float):
        return number(value)
    return printable(value)


def _change(deviation: Deviation) -> str:
    parts = [_WORDS[deviation.kind][2]]
    expected, measured = deviation.expected, deviation.measured
    if isinstance(expected, int | float) and isinstance(measured, int | float):
        parts.append(_difference(expected, measured))
    if deviation.note:
        parts.append(printable(deviation.note.rstrip(".")))
    text = ", ".join(filter(None, parts))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _difference(before: float, now: float) -> str:
    direction = "up" if now > before else "down"
    if before <= 0 or now <= 0:
        return direction
    factor = now / before if now > before else before / now
    if not math.isfinite(factor):
        return direction
    if factor >= 2:
        return f"{direction} {number(float(factor), trim=True)} times"
    return f"{direction} {number(abs(now / before - 1) * 100, trim=True)} %"


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
        shown = found[:_MOST_ROWS]
        columns = map(code, DeviationText.__slots__)
        blocks.append(as_markdown(table_of(shown, *columns)))
        if len(found) > len(shown):
            blocks.append(f"{len(found) - len(shown):,} more differences are left out.")
    blocks += [in_code(text) for text in said]
    for text, commands in steps:
        blocks.append("\n".join([text, *(f"- {in_code(command)}" for command in commands)]))
    as_expected = [judged for judged in verdict.judged if judged.kind is None]
    if as_expected and found:
        title = f"<summary>{len(as_expected):,} as expected</summary>"
        blocks.append(f"<details>\n{title}\n\n{_expected_table(as_expected)}\n\n</details>")
    elif as_expected:
        blocks.append(_expected_table(as_expected))
    return "\n\n".join(blocks) + "\n"


def failure_markdown(reason: str) -> str:
    """Return Markdown that reports a failure of the gate itself, with the reason."""
    return f"## Error: the gate failed, so nothing is judged\n\n{in_code(printable(reason))}\n"


def _expected_table(judged: Sequence[Judged]) -> str:
    """Return a Markdown table of cells that are as expected; every such cell was measured."""
    table = table_of(
        judged[:_MOST_ROWS],
        code("cell", lambda each: printable(str(each.cell))),
        code("status", lambda each: each.measured.status),
        code("decision", lambda each: each.measured.decision or ""),
        code("ratio", lambda each: _text(each.measured.ratio and each.measured.ratio.interval)),
        code("expected ratio", lambda each: _text(each.expected and each.expected.ratio)),
    )
    return as_markdown(table)
