"""New expectations from measured cells: those that hold stay, those that do not are replaced."""

import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import TypeVar

from harness.gates.expectations import DECISIONS, Expectation, Expectations
from harness.gates.gate import GateVerdict, Judged
from harness.gates.measured_cells import MeasuredCell

T = TypeVar("T")

_DIGITS = 3
_SURE_DIGITS = 12


def renewed(expectations: Expectations, verdict: GateVerdict) -> Expectations:
    """Return what the gate would expect if all that differs were accepted.

    What is as expected, or may be, keeps its expectation to the letter, and so does what these
    cells say nothing about: what is missing, not installed, failed, or decides otherwise than it
    must. That cannot be accepted; it must be repaired, or leave the file.
    """
    cells = {judged.cell: _renewed(judged, expectations) for judged in verdict.judged}
    measured = [judged.measured for judged in verdict.judged if judged.measured is not None]
    last = measured[-1]
    return replace(expectations, cells=cells, python=last.python, packages=last.packages)


def _renewed(judged: Judged, expectations: Expectations) -> Expectation:
    expected, measured = judged.expected, judged.measured
    if measured is None or judged.kind in (None, "not measured", "inconclusive"):
        assert expected is not None, "a cell without an expectation deviates"
        return expected
    if not measured.is_as_it_must_be:
        return expected or Expectation(measured.cell, against=measured.against)
    fresh = _observed(measured, expectations.ratio_slack)
    if expected is not None:
        sure = (each for each in judged.deviations if each.kind != "inconclusive")
        fresh = _merged(expected, fresh, {deviation.what for deviation in sure})
    return _without({*expectations.ignore, *fresh.ignore}, fresh)


def _merged(expected: Expectation, fresh: Expectation, deviating: set[str]) -> Expectation:
    """Take what deviates from `fresh`, and the rest from what was expected."""

    def figures(kind: str, before: Mapping[str, T], now: Mapping[str, T]) -> dict[str, T]:
        return {
            name: before[name] if name in before and f"{kind}.{name}" not in deviating else value
            for name, value in now.items()
        }

    takes_ratio = deviating & {"ratio", "against", "status", "cell"}
    return replace(
        fresh,
        given=expected.given,
        quality=figures("quality", expected.quality, fresh.quality),
        quality_tolerance=expected.quality_tolerance,
        counters=figures("counters", expected.counters, fresh.counters),
        ratio=fresh.ratio if takes_ratio else expected.ratio,
        ignore=expected.ignore,
    )


def _without(ignored: set[str], expected: Expectation) -> Expectation:
    def kept(kind: str, figures: Mapping[str, T]) -> dict[str, T]:
        return {name: value for name, value in figures.items() if f"{kind}.{name}" not in ignored}

    return replace(
        expected,
        decision=None if "decision" in ignored else expected.decision,
        fingerprint=None if "fingerprint" in ignored else expected.fingerprint,
        quality=kept("quality", expected.quality),
        counters=kept("counters", expected.counters),
        ratio=None if "ratio" in ignored else expected.ratio,
    )


def _observed(measured: MeasuredCell, slack: float) -> Expectation:
    if measured.status != "ok":
        return Expectation(measured.cell, against=measured.against, status=measured.status)
    return Expectation(
        measured.cell,
        against=measured.against,
        decision=measured.decision if measured.decision in DECISIONS else None,
        fingerprint=measured.fingerprint,
        quality=measured.quality,
        counters=measured.counters,
        ratio=_widened(measured.ratio, slack),
    )


def _widened(ratio: tuple[float, float] | None, slack: float) -> tuple[float, float] | None:
    """Widen an interval by a factor either way; one without an end is none."""
    if ratio is None or not 0 < ratio[1] * slack < math.inf:
        return None
    return _rounded(ratio[0] / slack, ROUND_FLOOR), _rounded(ratio[1] * slack, ROUND_CEILING)


def _rounded(value: float, rounding: str) -> float:
    written = Context(prec=_SURE_DIGITS).create_decimal(value)
    return float(Context(prec=_DIGITS, rounding=rounding).create_decimal(written))
