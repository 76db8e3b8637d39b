"""Judge measured cells by expectations, and propose new expectations; nothing is measured here."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Literal, get_args

from msgspec import structs

from harness.gate.expectations import Expectation, Expectations, Figures, MadeWith, Value
from harness.model.cell import Cell, Ratio
from harness.model.errors import ShardbenchError
from harness.model.ids import CellId

Kind = Literal["not measured", "regression", "missing", "changed", "win", "new", "inconclusive"]
"""How a cell deviates, worst first."""

HARNESS_FAILED = 3
"""The gate's exit code if the gate itself failed."""

_KINDS: tuple[Kind, ...] = get_args(Kind)
_MOVED = ("win", "regression")
_CALLED = ("ok", "over budget", "failed")
_NOISE = 0.005  # of Python calls, as a share
_DIGITS = 3
_SURE_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Deviation:
    """A difference between a cell and its expectation.

    `what` names the aspect: `cell`, `against`, `status`, or a figure (see `Expectation.figures`).
    `note` is a reason or empty.
    """

    what: str
    kind: Kind
    expected: Value = None
    measured: Value = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """A cell's expectation and measurement (None if there is none), and its deviations."""

    cell: CellId
    expected: Expectation | None
    measured: Cell | None
    deviations: tuple[Deviation, ...]

    @property
    def kind(self) -> Kind | None:
        """The kind of the cell's worst deviation, or None if there is none."""
        kinds = {deviation.kind for deviation in self.deviations}
        return min(kinds, key=_KINDS.index, default=None)


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The judged cells of a gate, and the differences in versions.

    `versions` maps a package (or "python") to its version in the expectations and in the
    measurement, if the two differ. An empty text means that the package is not installed.
    """

    judged: tuple[Judged, ...]
    versions: Mapping[str, tuple[str, str]]

    @property
    def kind(self) -> Kind | None:
        """The kind of the worst deviation of all cells, or None if there is none."""
        kinds = {judged.kind for judged in self.judged if judged.kind}
        return min(kinds, key=_KINDS.index, default=None)

    def count(self, kind: Kind | None) -> int:
        """Return the number of cells with this worst deviation; None counts those without any."""
        return sum(judged.kind == kind for judged in self.judged)

    @property
    def exit_code(self) -> int:
        """3 if a cell was not measured, else 1 if one deviates, else 2 if inconclusive, else 0."""
        return {None: 0, "not measured": HARNESS_FAILED, "inconclusive": 2}.get(self.kind, 1)


def judge_cells(expectations: Expectations, measured: Mapping[CellId, Cell]) -> GateVerdict:
    """Judge measured cells by id. Raise ShardbenchError if no cell's planner was called."""
    if not measured:
        raise ShardbenchError("There is no cell to judge.")
    if all(cell.status not in _CALLED for cell in measured.values()):
        raise ShardbenchError(
            "Nothing was measured: every cell is 'not installed' or 'not applicable'."
        )
    judged = []
    for name in dict.fromkeys((*expectations.cells, *measured)):
        expected, cell = expectations.cells.get(name), measured.get(name)
        deviations = tuple(_deviations(expected, cell, expectations))
        judged.append(Judged(name, expected, cell, deviations))
    before, now = expectations.made_with, _made_with(measured.values())
    versions = _differences(before, now) if before != MadeWith() else {}
    return GateVerdict(tuple(judged), versions)


def _deviations(
    expected: Expectation | None, measured: Cell | None, expectations: Expectations
) -> Iterator[Deviation]:
    if measured is None:
        yield Deviation("cell", "missing", "expected", "not in the results")
    elif measured.decision == "different":
        note = f"it must decide the same as {measured.same_as or measured.against}"
        yield Deviation("decision", "regression", "same", "different", note)
    elif expected is None and measured.status == "failed":
        yield Deviation("status", "regression", None, "failed", measured.reason or "")
    elif expected is None:
        yield Deviation("cell", "new", None, measured.status, measured.reason or "")
    elif measured.status != expected.status:
        kind = _kind_of_status(expected.status, measured.status)
        yield Deviation("status", kind, expected.status, measured.status, measured.reason or "")
    elif measured.status == "ok" and not expected.figures:
        yield Deviation("cell", "new", None, measured.status)
    elif measured.status == "ok":
        yield from _other_figures(expected, measured, expectations)


def _kind_of_status(before: str, now: str) -> Kind:
    if now == "not installed":  # a fault of this environment, not of the code
        return "not measured"
    if now == "ok" and before == "over budget":
        return "win"
    return "regression" if now == "failed" or before in ("ok", "over budget") else "changed"


def _other_figures(
    expected: Expectation, measured: Cell, expectations: Expectations
) -> Iterator[Deviation]:
    """Yield a deviation for each figure that differs and is not ignored.

    If some counts rise and others fall, all of them are `changed`.
    """
    ignored = {*expectations.ignore, *expected.ignore}
    if expected.against and expected.against != measured.against:
        yield Deviation("against", "changed", expected.against, measured.against)
        ignored |= {"decision", "ratio"}
    tolerance = expected.quality_tolerance
    tolerance = expectations.quality_tolerance if tolerance is None else tolerance
    before, now = expected.figures, _figures(measured)
    deviations = [
        Deviation(what, kind, before.get(what), now.get(what), note)
        for what in dict.fromkeys((*before, *now))
        if what not in ignored
        for kind, note in _judged(what, before.get(what), now.get(what), measured, tolerance)
    ]
    moved = [d for d in deviations if d.what.startswith("counters.") and d.kind in _MOVED]
    is_mixed = len({deviation.kind for deviation in moved}) > 1
    for deviation in deviations:
        yield replace(deviation, kind="changed") if is_mixed and deviation in moved else deviation


def _figures(cell: Cell) -> Figures:
    """Return the measured figures, named as in `Expectation.figures`."""
    figures: Figures = {f"quality.{name}": value for name, value in cell.quality.items()}
    figures |= {f"counters.{name}": value for name, value in cell.counters.items()}
    if cell.decision not in (None, "different"):
        figures["decision"] = cell.decision
    if cell.fingerprint:
        figures["fingerprint"] = cell.fingerprint
    if cell.work:
        figures["python_calls"] = cell.work.python_calls
    if cell.ratio:
        figures["ratio"] = cell.ratio.interval
    return figures


def _judged(
    what: str, expected: Value, measured: Value, cell: Cell, tolerance: float
) -> Iterator[tuple[Kind, str]]:
    """Yield the kind of a figure's deviation and a note, unless it is as expected."""
    group, _, name = what.partition(".")
    if what == "ratio":
        yield from _judged_ratio(expected, measured, cell)
    elif what == "python_calls" and measured is None:
        yield "inconclusive", "its work was not counted"
    elif expected is None:
        if what != "python_calls":
            yield "new", ""
    elif measured is None:
        yield "missing" if name else "changed", ""
    elif isinstance(expected, int | float) and isinstance(measured, int | float):
        slack, better = 0.0, "lower"
        if group == "quality":
            slack = tolerance * max(abs(expected), abs(measured))
            better = {quality.name: quality.better for quality in cell.qualities}.get(name, "")
        elif what == "python_calls" and cell.work:
            # Objects that are hashed by their addresses collide in some processes, and then Python
            # compares them, so equal work differs by its spread or 0.5 %.
            slack = max(cell.work.spread or 0, _NOISE * expected)
        if abs(measured - expected) > slack:
            gains = {"lower": measured < expected, "higher": measured > expected}
            yield "changed" if not better else "win" if gains[better] else "regression", ""
    elif expected != measured:
        yield "changed", ""


def _judged_ratio(expected: Value, measured: Value, cell: Cell) -> Iterator[tuple[Kind, str]]:
    """As `_judged`; an interval that extends only below the expected one is as expected."""
    if not isinstance(measured, tuple):
        yield "inconclusive", cell.verdict_reason or "it has none"
    elif not isinstance(expected, tuple):
        if measured[1] < math.inf:
            yield "new", ""
    elif measured[1] < expected[0]:
        yield "win", ""
    elif measured[0] > expected[1]:
        yield "regression", ""
    elif measured[1] > expected[1]:
        yield "inconclusive", cell.verdict_reason


def _made_with(cells: Iterable[Cell]) -> MadeWith:
    """Return the versions that cells were measured with; of several, the last."""
    made_with = MadeWith()
    for cell in cells:
        packages = made_with.packages | cell.environment.packages
        made_with = MadeWith(cell.environment.python or "", packages)
    return made_with


def _differences(before: MadeWith, now: MadeWith) -> dict[str, tuple[str, str]]:
    old, new = ({"python": made.python, **made.packages} for made in (before, now))
    names = sorted(name for name in old | new if old.get(name, "") != new.get(name, ""))
    return {name: (old.get(name, ""), new.get(name, "")) for name in names}


def renewed(expectations: Expectations, verdict: GateVerdict) -> Expectations:
    """Return new expectations that accept every conclusive deviation.

    Figures that agree or are inconclusive keep their old expectation. Cells that are missing,
    failed, not installed or make a wrong decision keep theirs too: fix them, or delete them.
    """
    cells = {judged.cell: _renewed(judged, expectations) for judged in verdict.judged}
    made_with = _made_with(judged.measured for judged in verdict.judged if judged.measured)
    return structs.replace(expectations, cells=cells, made_with=made_with)


def _renewed(judged: Judged, expectations: Expectations) -> Expectation:
    expected, measured = judged.expected, judged.measured
    if measured is None or judged.kind in (None, "not measured", "inconclusive"):
        assert expected is not None, "a cell without an expectation deviates"
        return expected
    if not is_as_it_must_be(measured):
        return expected or Expectation(against=measured.against)
    assert measured.status != "failed", "see is_as_it_must_be"
    expected = expected or Expectation()
    sure = {change.what for change in judged.deviations if change.kind != "inconclusive"}
    if measured.status != "ok":
        return expected.with_figures({}, against=measured.against, status=measured.status)
    now = _figures(measured)
    now["ratio"] = _widened(measured.ratio, expectations.ratio_slack)
    if "status" in sure or not expected.figures:
        sure = set(now)
    elif "against" in sure:
        sure |= {"decision", "ratio"}
    # What did not deviate keeps its expectation, also a ratio or count that was not measured now.
    kept = {name: value for name, value in expected.figures.items() if name not in sure}
    ignored = {*expectations.ignore, *expected.ignore}
    accepted = {name: now[name] for name in now if name in sure}
    figures = {name: value for name, value in (kept | accepted).items() if name not in ignored}
    return expected.with_figures(figures, against=measured.against, status="ok")


def without_noise(expectations: Expectations, again: GateVerdict) -> Expectations:
    """Return expectations that ignore each count that differed when it was taken `again`."""
    cells = dict(expectations.cells)
    for judged in again.judged:
        names = (deviation.what for deviation in judged.deviations)
        noise = [name for name in names if name.startswith(("python_calls", "counters."))]
        if noise and judged.cell in cells:
            expected = cells[judged.cell]
            figures = {n: value for n, value in expected.figures.items() if n not in noise}
            ignore = (*expected.ignore, *noise)
            cells[judged.cell] = expected.with_figures(figures, ignore=ignore)
    return structs.replace(expectations, cells=cells)


def is_as_it_must_be(cell: Cell | None) -> bool:
    """Return whether a cell exists, did not fail and makes the decision that it must make."""
    return cell is not None and cell.status != "failed" and cell.decision != "different"


def _widened(ratio: Ratio | None, slack: float) -> tuple[float, float] | None:
    """Widen a ratio's interval by the factor `slack` at both ends; return None if infinite."""
    if ratio is None or not 0 < ratio.high * slack < math.inf:
        return None
    return _rounded(ratio.low / slack, ROUND_FLOOR), _rounded(ratio.high * slack, ROUND_CEILING)


def _rounded(value: float, rounding: str) -> float:
    written = Context(prec=_SURE_DIGITS).create_decimal(value)
    return float(Context(prec=_DIGITS, rounding=rounding).create_decimal(written))
