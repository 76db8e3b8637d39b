"""Judge measured cells by expectations. This module only computes the verdict."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar, get_args

from msgspec.structs import replace

from harness.gate.difference import (
    Deviation,
    Kind,
    compare_counters,
    compare_qualities,
    compare_ratios,
    compare_texts,
    compare_work,
)
from harness.gate.expectations import Expectation, Expectations, Rules
from harness.model.cell import Cell
from harness.model.errors import ShardbenchError
from harness.model.ids import CellId

T = TypeVar("T")

ALL_AS_EXPECTED, DEVIATION, INCONCLUSIVE, HARNESS_FAILED = 0, 1, 2, 3
"""The exit codes of the gate."""

_KINDS: tuple[Kind, ...] = get_args(Kind)
_CALLED = ("ok", "over budget", "failed")


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
    for cell in dict.fromkeys((*expectations.cells, *measured)):
        expected, found = expectations.cells.get(cell), measured.get(cell)
        strict = expected and _with_defaults(expectations.rules, expected)
        judged.append(Judged(cell, expected, found, tuple(_deviations(strict, found))))
    return GateVerdict(tuple(judged), _version_changes(expectations.rules, measured))


def _with_defaults(rules: Rules, expected: Expectation) -> Expectation:
    """Return a cell's expectation with the file's quality tolerance and ignored aspects added."""
    own = expected.quality_tolerance
    return replace(
        expected,
        quality_tolerance=rules.quality_tolerance if own is None else own,
        ignore=(*rules.ignore, *expected.ignore),
    )


def _deviations(expected: Expectation | None, measured: Cell | None) -> Iterator[Deviation]:
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
        if expected.has_figures:
            yield from _figures(expected, measured)
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


def _figures(expected: Expectation, measured: Cell) -> Iterator[Deviation]:
    against = expected.against or measured.against
    compares_alike = against == measured.against
    if not compares_alike:
        yield Deviation("against", "changed", against, measured.against)
    if compares_alike and "decision" not in expected.ignore:
        yield from compare_texts("decision", expected.decision, measured.decision)
    if "fingerprint" not in expected.ignore:
        found = measured.fingerprint or None
        yield from compare_texts("fingerprint", expected.fingerprint, found)

    def judged(kind: str, figures: Mapping[str, T]) -> dict[str, T]:
        return without(expected.ignore, kind, figures)

    yield from compare_qualities(
        judged("quality", expected.quality),
        judged("quality", measured.quality),
        {quality.name: quality.better for quality in measured.qualities},
        expected.quality_tolerance or 0.0,
    )
    yield from compare_counters(
        judged("counters", expected.counters), judged("counters", measured.counters)
    )
    if expected.python_calls is not None and "python_calls" not in expected.ignore:
        yield from compare_work(expected.python_calls, measured.work)
    if compares_alike and "ratio" not in expected.ignore:
        yield from _ratio(expected.ratio, measured)


def without(ignored: tuple[str, ...], kind: str, figures: Mapping[str, T]) -> dict[str, T]:
    """Return the figures without the ignored ones; `kind` is `quality` or `counters`."""
    return {name: value for name, value in figures.items() if f"{kind}.{name}" not in ignored}


def _ratio(expected: tuple[float, float] | None, measured: Cell) -> Iterator[Deviation]:
    found = measured.ratio and measured.ratio.interval
    if expected is None:
        if found and found[1] < math.inf:
            yield Deviation("ratio", "new", None, found)
    elif not found:
        why = measured.verdict_reason or "it has none"
        yield Deviation("ratio", "inconclusive", expected, None, why)
    else:
        yield from compare_ratios(expected, found, measured.verdict_reason)


def _version_changes(rules: Rules, measured: Mapping[CellId, Cell]) -> dict[str, tuple[str, str]]:
    made_with = rules.made_with
    if not made_with.python and not made_with.packages:
        return {}
    before = {"python": made_with.python, **made_with.packages}
    now: dict[str, set[str]] = {}
    for cell in measured.values():
        found = {"python": cell.environment.python or "", **cell.environment.packages}
        for name, version in found.items():
            now.setdefault(name, set()).add(version)
    return {
        name: (before.get(name, ""), " and ".join(sorted(now.get(name, {""}))))
        for name in sorted({*before, *now})
        if now.get(name, {""}) != {before.get(name, "")}
    }
