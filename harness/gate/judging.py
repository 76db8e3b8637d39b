"""Judge measured cells by expectations, and propose new expectations; nothing is measured here."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Literal, get_args

from msgspec import structs

from harness.gate.expectations import Expectation, Expectations, Figures, MadeWith, Rules, Value
from harness.model.cell import Cell, Ratio
from harness.model.errors import ShardbenchError
from harness.model.ids import CellId
from harness.model.quality import Place, place

Kind = Literal["not measured", "regression", "missing", "changed", "win", "new", "inconclusive"]
"""How a cell deviates, worst first."""

ALL_AS_EXPECTED, DEVIATION, INCONCLUSIVE, HARNESS_FAILED = 0, 1, 2, 3
"""The exit codes of the gate."""

_KINDS: tuple[Kind, ...] = get_args(Kind)
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
        return next((kind for kind in _KINDS if kind in kinds), None)


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
        return next((kind for kind in _KINDS if self.count(kind)), None)

    def count(self, kind: Kind | None) -> int:
        """Return the number of cells with this worst deviation; None counts those without any."""
        return Counter(judged.kind for judged in self.judged)[kind]

    @property
    def exit_code(self) -> int:
        """3 if a cell was not measured, else 1 if one deviates, else 2 if inconclusive, else 0."""
        if self.kind is None:
            return ALL_AS_EXPECTED
        codes = {"not measured": HARNESS_FAILED, "inconclusive": INCONCLUSIVE}
        return codes.get(self.kind, DEVIATION)


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
        deviations = tuple(_deviations(expected, cell, expectations.rules))
        judged.append(Judged(name, expected, cell, deviations))
    return GateVerdict(tuple(judged), _version_changes(expectations.rules, measured))


def _deviations(
    expected: Expectation | None, measured: Cell | None, rules: Rules
) -> Iterator[Deviation]:
    if measured is None:
        yield Deviation("cell", "missing", "expected", "not in the results")
    elif measured.decision == "different":
        note = f"it must decide the same as {measured.same_as or measured.against}"
        yield Deviation("decision", "regression", "same", "different", note)
    elif expected is None:
        failed = measured.status == "failed"
        what = "status" if failed else "cell"
        kind: Kind = "regression" if failed else "new"
        yield Deviation(what, kind, None, measured.status, measured.reason or "")
    elif measured.status != expected.status:
        yield _other_status(expected, measured)
    elif measured.status == "ok":
        if expected.figures:
            yield from _other_figures(expected, measured, rules)
        else:
            yield Deviation("cell", "new", None, measured.status)


def _other_status(expected: Expectation, measured: Cell) -> Deviation:
    before, now = expected.status, measured.status
    kind: Kind
    if now == "not installed":  # a fault of this environment, not of the code
        kind = "not measured"
    elif now == "ok" and before == "over budget":
        kind = "win"
    elif now == "failed" or before in ("ok", "over budget"):
        kind = "regression"
    else:
        kind = "changed"
    return Deviation("status", kind, before, now, measured.reason or "")


def _other_figures(expected: Expectation, measured: Cell, rules: Rules) -> Iterator[Deviation]:
    """Yield a deviation for each figure that differs and is not ignored.

    If some counts rise and others fall, all of them are `changed`.
    """
    ignored = {*rules.ignore, *expected.ignore}
    if expected.against and expected.against != measured.against:
        yield Deviation("against", "changed", expected.against, measured.against)
        ignored |= {"decision", "ratio"}
    tolerance = expected.quality_tolerance
    tolerance = rules.quality_tolerance if tolerance is None else tolerance
    before, now = expected.figures, _figures(measured)
    found = [
        Deviation(what, kind, before.get(what), now.get(what), note)
        for what in dict.fromkeys((*before, *now))
        if what not in ignored
        for kind, note in _judged(what, before.get(what), now.get(what), measured, tolerance)
    ]
    moved = [d for d in found if d.what.startswith("counters.") and d.kind in ("win", "regression")]
    is_mixed = len({deviation.kind for deviation in moved}) > 1
    for deviation in found:
        yield replace(deviation, kind="changed") if is_mixed and deviation in moved else deviation


def _figures(cell: Cell) -> Figures:
    """Return the measured figures, named as in `Expectation.figures`."""
    work, ratio = cell.work, cell.ratio
    return Expectation(
        decision=None if cell.decision == "different" else cell.decision,
        fingerprint=cell.fingerprint or None,
        quality=cell.quality,
        counters=cell.counters,
        python_calls=work.python_calls if work else None,
    ).figures | ({"ratio": ratio.interval} if ratio else {})


def _judged(
    what: str, expected: Value, measured: Value, cell: Cell, tolerance: float
) -> Iterator[tuple[Kind, str]]:
    """Yield the kind of a figure's deviation and a note, unless it is as expected."""
    group, _, name = what.partition(".")
    match expected, measured:
        case None, tuple() as interval if interval[1] == math.inf:
            return
        case None, _:
            if group != "python_calls":
                yield "new", ""
        case _, None if group == "ratio":
            yield "inconclusive", cell.verdict_reason or "it has none"
        case _, None if group == "python_calls":
            yield "inconclusive", "its work was not counted"
        case _, None:
            yield "missing" if name else "changed", ""
        case str(), _:
            if expected != measured:
                yield "changed", ""
        case tuple() as limits, tuple() as interval:
            # An interval that extends only below the expected one also passes, if they overlap.
            kinds: dict[Place, Kind] = {"above": "regression", "below": "win"}
            where = place(interval, limits)
            if where in kinds:
                yield kinds[where], ""
            elif where == "across" and interval[1] > limits[1]:
                yield "inconclusive", cell.verdict_reason
        case float() | int(), float() | int():
            if group == "quality":
                if not math.isclose(expected, measured, rel_tol=tolerance):
                    better = {quality.name: quality.better for quality in cell.qualities}.get(name)
                    gained = {"lower": measured < expected, "higher": measured > expected}
                    yield _moved(gained.get(better or "")), ""
            # Objects that are hashed by their addresses collide in some processes, and then Python
            # compares them, so equal work differs by its spread or 0.5 %.
            elif group == "python_calls" and cell.work:
                if abs(measured - expected) > max(cell.work.spread or 0, _NOISE * expected):
                    yield _moved(measured < expected), ""
            elif expected != measured:
                yield _moved(measured < expected), ""


def _moved(gained: bool | None) -> Kind:
    return "changed" if gained is None else "win" if gained else "regression"


def _version_changes(rules: Rules, measured: Mapping[CellId, Cell]) -> dict[str, tuple[str, str]]:
    made_with = rules.made_with
    if not made_with.python and not made_with.packages:
        return {}
    before = {"python": made_with.python, **made_with.packages}
    now: dict[str, set[str]] = {}
    for cell in measured.values():
        versions = {"python": cell.environment.python or "", **cell.environment.packages}
        for name, version in versions.items():
            now.setdefault(name, set()).add(version)
    return {
        name: (before.get(name, ""), " and ".join(sorted(now.get(name, {""}))))
        for name in sorted({*before, *now})
        if now.get(name, {""}) != {before.get(name, "")}
    }


def renewed(expectations: Expectations, verdict: GateVerdict) -> Expectations:
    """Return new expectations that accept every conclusive deviation.

    Figures that agree or are inconclusive keep their old expectation. Cells that are missing,
    failed, not installed or make a wrong decision keep theirs too: fix them, or delete them.
    """
    cells = {judged.cell: _renewed(judged, expectations.rules) for judged in verdict.judged}
    made_by = [judged.measured.environment for judged in verdict.judged if judged.measured]
    packages = {name: version for where in made_by for name, version in where.packages.items()}
    made_with = MadeWith(made_by[-1].python or "", packages)
    return Expectations(cells, structs.replace(expectations.rules, made_with=made_with))


def _renewed(judged: Judged, rules: Rules) -> Expectation:
    expected, measured = judged.expected, judged.measured
    if measured is None or judged.kind in (None, "not measured", "inconclusive"):
        assert expected is not None, "a cell without an expectation deviates"
        return expected
    if not is_as_it_must_be(measured):
        return expected or Expectation(against=measured.against)
    assert measured.status != "failed", "see is_as_it_must_be"
    expected = expected or Expectation()
    sure = {found.what for found in judged.deviations if found.kind != "inconclusive"}
    if sure & {"against", "status", "cell"}:
        sure |= {"decision", "ratio"}
    # What did not deviate keeps its expectation, also a ratio or count that was not measured now.
    kept = {name: value for name, value in expected.figures.items() if name not in sure}
    now = _figures(measured) if measured.status == "ok" else {}
    if measured.status == "ok":
        now["ratio"] = _widened(measured.ratio, rules.ratio_slack)
        now |= {name: kept[name] for name in kept if name in now or "." not in name}
    ignored = {*rules.ignore, *expected.ignore}
    figures = {name: value for name, value in now.items() if name not in ignored}
    return expected.with_figures(figures, against=measured.against, status=measured.status)


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
    return Expectations(cells, expectations.rules)


def is_as_it_must_be(cell: Cell) -> bool:
    """Return whether a cell did not fail and agrees with the variant that it must reproduce."""
    return cell.status != "failed" and cell.decision != "different"


def _widened(ratio: Ratio | None, slack: float) -> tuple[float, float] | None:
    """Widen a ratio's interval by the factor `slack` at both ends; return None if infinite."""
    if ratio is None or not 0 < ratio.high * slack < math.inf:
        return None
    return _rounded(ratio.low / slack, ROUND_FLOOR), _rounded(ratio.high * slack, ROUND_CEILING)


def _rounded(value: float, rounding: str) -> float:
    written = Context(prec=_SURE_DIGITS).create_decimal(value)
    return float(Context(prec=_DIGITS, rounding=rounding).create_decimal(written))
