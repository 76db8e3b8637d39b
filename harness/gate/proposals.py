"""Propose new expectations: keep those that the results meet, and replace the others."""

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import TypeVar

from msgspec.structs import replace

from harness.gate.expectations import Expectation, Expectations, MadeWith
from harness.gate.gate import GateVerdict, Judged, without
from harness.model.cell import Cell, Ratio

T = TypeVar("T")

_DIGITS = 3
_SURE_DIGITS = 12


def renewed(expectations: Expectations, verdict: GateVerdict) -> Expectations:
    """Return new expectations that accept every conclusive deviation.

    Figures that agree or are inconclusive keep their old expectation. Cells that are missing,
    failed, not installed or make a wrong decision keep theirs too: fix them, or delete them.
    """
    cells = {judged.cell: _renewed(judged, expectations) for judged in verdict.judged}
    made_by = [judged.measured.environment for judged in verdict.judged if judged.measured]
    packages = {name: version for where in made_by for name, version in where.packages.items()}
    made_with = MadeWith(made_by[-1].python or "", packages)
    return Expectations(cells, replace(expectations.rules, made_with=made_with))


def without_noise(expectations: Expectations, again: GateVerdict) -> Expectations:
    """Return expectations that ignore each count that differed when it was taken `again`."""
    cells = dict(expectations.cells)
    for judged in again.judged:
        found = (deviation.what for deviation in judged.deviations)
        noise = tuple(w for w in found if w == "python_calls" or w.startswith("counters."))
        if noise and judged.cell in cells:
            expected = cells[judged.cell]
            cells[judged.cell] = replace(
                expected,
                counters=without(noise, "counters", expected.counters),
                python_calls=None if "python_calls" in noise else expected.python_calls,
                ignore=(*expected.ignore, *noise),
            )
    return Expectations(cells, expectations.rules)


def is_as_it_must_be(cell: Cell) -> bool:
    """Return whether a cell did not fail and agrees with the variant that it must reproduce."""
    return cell.status != "failed" and cell.decision != "different"


def _renewed(judged: Judged, expectations: Expectations) -> Expectation:
    expected, measured, rules = judged.expected, judged.measured, expectations.rules
    if measured is None or judged.kind in (None, "not measured", "inconclusive"):
        assert expected is not None, "a cell without an expectation deviates"
        return expected
    if not is_as_it_must_be(measured):
        return expected or Expectation(against=measured.against)
    fresh = _observed(measured, rules.ratio_slack)
    if expected is not None:
        sure = {found.what for found in judged.deviations if found.kind != "inconclusive"}
        fresh = _merged(expected, fresh, sure)
    ignored = (*rules.ignore, *fresh.ignore)
    return replace(
        fresh,
        decision=None if "decision" in ignored else fresh.decision,
        fingerprint=None if "fingerprint" in ignored else fresh.fingerprint,
        quality=without(ignored, "quality", fresh.quality),
        counters=without(ignored, "counters", fresh.counters),
        ratio=None if "ratio" in ignored else fresh.ratio,
        python_calls=None if "python_calls" in ignored else fresh.python_calls,
    )


def _merged(expected: Expectation, fresh: Expectation, deviating: set[str]) -> Expectation:
    """Combine two expectations: deviating values from `fresh`, the others from `expected`."""

    def figures(kind: str, before: Mapping[str, T], now: Mapping[str, T]) -> dict[str, T]:
        return {
            name: before[name] if name in before and f"{kind}.{name}" not in deviating else value
            for name, value in now.items()
        }

    takes_work = expected.python_calls is None or "python_calls" in deviating
    takes_ratio = deviating & {"ratio", "against", "status", "cell"}
    return replace(
        fresh,
        given=expected.given,
        quality=figures("quality", expected.quality, fresh.quality),
        quality_tolerance=expected.quality_tolerance,
        counters=figures("counters", expected.counters, fresh.counters),
        ratio=fresh.ratio if takes_ratio else expected.ratio,
        python_calls=fresh.python_calls if takes_work else expected.python_calls,
        ignore=expected.ignore,
    )


def _observed(measured: Cell, slack: float) -> Expectation:
    assert measured.status != "failed", "what failed is not expected to"
    if measured.status != "ok":
        return Expectation(against=measured.against, status=measured.status)
    decision = None if measured.decision == "different" else measured.decision
    return Expectation(
        against=measured.against,
        decision=decision,
        fingerprint=measured.fingerprint or None,
        quality=measured.quality,
        counters=measured.counters,
        ratio=_widened(measured.ratio, slack),
        python_calls=measured.work.python_calls if measured.work else None,
    )


def _widened(ratio: Ratio | None, slack: float) -> tuple[float, float] | None:
    """Widen a ratio's interval by the factor `slack` at both ends; return None if infinite."""
    if ratio is None or not 0 < ratio.high * slack < math.inf:
        return None
    return _rounded(ratio.low / slack, ROUND_FLOOR), _rounded(ratio.high * slack, ROUND_CEILING)


def _rounded(value: float, rounding: str) -> float:
    written = Context(prec=_SURE_DIGITS).create_decimal(value)
    return float(Context(prec=_DIGITS, rounding=rounding).create_decimal(written))
