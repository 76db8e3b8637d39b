"""Judge stored cells by what is expected of them. Nothing here is measured, printed or written."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from harness.errors import ShardbenchError
from harness.gates.expectations import Expectation, Expectations
from harness.gates.measured_cells import MeasuredCell

Kind = Literal["not measured", "regression", "missing", "changed", "win", "new", "inconclusive"]
"""How a cell deviates, worst first."""

Value = float | str | tuple[float, float] | None

ALL_AS_EXPECTED, DEVIATION, INCONCLUSIVE, HARNESS_FAILED = 0, 1, 2, 3
"""The exit codes of the gate."""

_KINDS: tuple[Kind, ...] = get_args(Kind)
_CALLED = ("ok", "over budget", "failed")


@dataclass(frozen=True, slots=True)
class Deviation:
    """One thing about a cell that is not as expected.

    `what` is `cell`, `against`, `status`, `decision`, `fingerprint`, `ratio`, `quality.NAME` or
    `counters.NAME`; `note` says more, where there is more to say.
    """

    what: str
    kind: Kind
    expected: Value = None
    measured: Value = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """A cell that is expected, measured, or both, and how it deviates."""

    cell: str
    expected: Expectation | None
    measured: MeasuredCell | None
    deviations: tuple[Deviation, ...]

    @property
    def kind(self) -> Kind | None:
        """The worst deviation's kind, None where all is as expected."""
        kinds = {deviation.kind for deviation in self.deviations}
        return next((kind for kind in _KINDS if kind in kinds), None)


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """All cells judged.

    `versions` has by name the versions that the expectations were made with and those that the
    cells were measured with, where the two differ; empty stands for not there.
    """

    judged: tuple[Judged, ...]
    versions: Mapping[str, tuple[str, str]]

    @property
    def kind(self) -> Kind | None:
        """The worst cell's kind, None where all is as expected."""
        return next((kind for kind in _KINDS if self.count(kind)), None)

    def count(self, kind: Kind | None) -> int:
        """Return how many cells deviate so."""
        return Counter(each.kind for each in self.judged)[kind]

    @property
    def exit_code(self) -> int:
        """3 before 1 before 2 before 0: what was not measured, deviates, or may deviate."""
        if self.kind is None:
            return ALL_AS_EXPECTED
        codes = {"not measured": HARNESS_FAILED, "inconclusive": INCONCLUSIVE}
        return codes.get(self.kind, DEVIATION)


def judge_cells(expectations: Expectations, measured: Mapping[str, MeasuredCell]) -> GateVerdict:
    """Judge measured cells by id.

    Raises:
        ShardbenchError: there are none, or none of them was called at all.
    """
    if not measured:
        raise ShardbenchError("There is no cell to judge.")
    if all(cell.status not in _CALLED for cell in measured.values()):
        raise ShardbenchError(
            "Nothing was measured: every cell is 'not installed' or 'not applicable'."
        )
    judged = []
    for cell in dict.fromkeys((*expectations.cells, *measured)):
        expected, found = expectations.cells.get(cell), measured.get(cell)
        deviations = _deviations(with_defaults(expectations, expected), found)
        judged.append(Judged(cell, expected, found, tuple(deviations)))
    return GateVerdict(tuple(judged), _version_changes(expectations, measured))


def with_defaults(expectations: Expectations, expected: Expectation | None) -> Expectation | None:
    """Return what is expected of a cell, with what the file says for all of them."""
    if expected is None:
        return None
    own = expected.quality_tolerance
    return replace(
        expected,
        quality_tolerance=expectations.quality_tolerance if own is None else own,
        ignore=(*expectations.ignore, *expected.ignore),
    )


def _deviations(expected: Expectation | None, measured: MeasuredCell | None) -> Iterator[Deviation]:
    if measured is None:
        yield Deviation("cell", "missing", "expected", "not in the results")
    elif measured.decision == "different":
        note = f"it must decide the same as {measured.same_as or measured.against}"
        yield Deviation("decision", "regression", "same", "different", note)
    elif expected is None:
        yield _unexpected(measured)
    elif measured.status != expected.status:
        yield _other_status(expected, measured)
    elif measured.status == "ok":
        if expected.has_figures:
            yield from _figures(expected, measured)
        else:
            yield Deviation("cell", "new", None, measured.status)


def _unexpected(measured: MeasuredCell) -> Deviation:
    if measured.status == "failed":
        return Deviation("status", "regression", None, "failed", measured.reason)
    return Deviation("cell", "new", None, measured.status, measured.reason)


def _other_status(expected: Expectation, measured: MeasuredCell) -> Deviation:
    before, now = expected.status, measured.status
    kind: Kind
    if now == "not installed":  # the fault of this environment, not of the code
        kind = "not measured"
    elif now == "ok" and before == "over budget":
        kind = "win"
    elif now == "failed" or before in ("ok", "over budget"):
        kind = "regression"
    else:
        kind = "changed"
    return Deviation("status", kind, before, now, measured.reason)


def _figures(expected: Expectation, measured: MeasuredCell) -> Iterator[Deviation]:
    against = expected.against or measured.against
    compares_alike = against == measured.against
    if not compares_alike:
        yield Deviation("against", "changed", against, measured.against)
    if compares_alike and "decision" not in expected.ignore:
        yield from _same("decision", expected.decision, measured.decision)
    if "fingerprint" not in expected.ignore:
        yield from _same("fingerprint", expected.fingerprint, measured.fingerprint)
    for name in _judged_names("quality", expected, measured):
        yield from _quality(name, expected, measured)
    yield from _counters(expected, measured)
    if compares_alike and "ratio" not in expected.ignore:
        yield from _ratio(expected.ratio, measured)


def _same(what: str, expected: str | None, measured: str | None) -> Iterator[Deviation]:
    if expected is None and measured is not None:
        yield Deviation(what, "new", None, measured)
    elif expected != measured:
        yield Deviation(what, "changed", expected, measured)


def _judged_names(
    figures: Literal["quality", "counters"], expected: Expectation, measured: MeasuredCell
) -> list[str]:
    names = dict.fromkeys((*getattr(expected, figures), *getattr(measured, figures)))
    return [name for name in names if f"{figures}.{name}" not in expected.ignore]


def _quality(name: str, expected: Expectation, measured: MeasuredCell) -> Iterator[Deviation]:
    before, now = expected.quality.get(name), measured.quality.get(name)
    what = f"quality.{name}"
    if before is None:
        yield Deviation(what, "new", None, now)
    elif now is None:
        yield Deviation(what, "missing", before, None)
    elif not math.isclose(before, now, rel_tol=expected.quality_tolerance or 0.0):
        better = {"lower": now < before, "higher": now > before}.get(measured.better.get(name, ""))
        yield Deviation(what, _direction(better), before, now)


def _direction(is_better: bool | None) -> Kind:
    return "changed" if is_better is None else "win" if is_better else "regression"


def _counters(expected: Expectation, measured: MeasuredCell) -> Iterator[Deviation]:
    """More work is worse; where some counts rise and others fall, neither can be said."""
    found = []
    for name in _judged_names("counters", expected, measured):
        before, now = expected.counters.get(name), measured.counters.get(name)
        what = f"counters.{name}"
        if before is None:
            found.append(Deviation(what, "new", None, now))
        elif now is None:
            found.append(Deviation(what, "missing", before, None))
        elif before != now:
            found.append(Deviation(what, _direction(now < before), before, now))
    if {"win", "regression"} <= {each.kind for each in found}:
        found = [
            replace(each, kind="changed") if each.kind in ("win", "regression") else each
            for each in found
        ]
    yield from found


def _ratio(expected: tuple[float, float] | None, measured: MeasuredCell) -> Iterator[Deviation]:
    found = measured.ratio
    if expected is None:
        if found is not None and found[1] < math.inf:
            yield Deviation("ratio", "new", None, found)
    elif found is None:
        why = measured.verdict_reason or "it has none"
        yield Deviation("ratio", "inconclusive", expected, None, why)
    elif found[0] > expected[1]:
        yield Deviation("ratio", "regression", expected, found)
    elif found[1] < expected[0]:
        yield Deviation("ratio", "win", expected, found)
    elif found[1] > expected[1]:
        yield Deviation("ratio", "inconclusive", expected, found, measured.verdict_reason)


def _version_changes(
    expectations: Expectations, measured: Mapping[str, MeasuredCell]
) -> dict[str, tuple[str, str]]:
    if not expectations.python and not expectations.packages:
        return {}
    before = {"python": expectations.python, **expectations.packages}
    now: dict[str, set[str]] = {}
    for cell in measured.values():
        for name, version in {"python": cell.python, **cell.packages}.items():
            now.setdefault(name, set()).add(version)
    changes = {}
    for name in sorted({*before, *now}):
        versions = now.get(name, {""})
        if versions != {before.get(name, "")}:
            changes[name] = (before.get(name, ""), " and ".join(sorted(versions)))
    return changes
