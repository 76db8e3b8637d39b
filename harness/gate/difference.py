"""Compare two cells with the same id, figure by figure: the expected and the measured cell of a
gate, or the cells of two results files."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from harness.model.cell import CountedWork
from harness.model.quality import Place, place

Kind = Literal["not measured", "regression", "missing", "changed", "win", "new", "inconclusive"]
"""How a cell deviates, worst first."""

_NOISE = 0.005

Value = float | str | tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Deviation:
    """A difference between a cell and its expectation.

    `what` names the aspect: `cell`, `against`, `status`, `decision`, `fingerprint`, `ratio`,
    `python_calls`, `quality.NAME` or `counters.NAME`. `note` is a reason or empty.
    """

    what: str
    kind: Kind
    expected: Value = None
    measured: Value = None
    note: str = ""


def compare_texts(what: str, expected: str | None, measured: str | None) -> Iterator[Deviation]:
    """Yield a deviation if two texts differ; it is `new` if nothing was expected."""
    if expected is None and measured is not None:
        yield Deviation(what, "new", None, measured)
    elif expected != measured:
        yield Deviation(what, "changed", expected, measured)


def compare_qualities(
    expected: Mapping[str, float],
    measured: Mapping[str, float],
    better: Mapping[str, str],
    tolerance: float,
) -> Iterator[Deviation]:
    """Yield a deviation for each quality that differs by more than the share `tolerance`.

    `better` maps the name of a quality to `lower` or `higher`.
    """
    for name, before, now in _pairs(expected, measured):
        what = f"quality.{name}"
        if before is None or now is None:
            yield _one_sided(what, before, now)
        elif not math.isclose(before, now, rel_tol=tolerance):
            gained = {"lower": now < before, "higher": now > before}.get(better.get(name, ""))
            yield Deviation(what, _direction(gained), before, now)


def compare_counters(
    expected: Mapping[str, float], measured: Mapping[str, float]
) -> Iterator[Deviation]:
    """Yield a deviation for each counter that differs: `regression` if higher, `win` if lower.

    If some counts rise and others fall, yield all of them as `changed`.
    """
    found = [
        _one_sided(f"counters.{name}", before, now)
        if before is None or now is None
        else Deviation(f"counters.{name}", _direction(now < before), before, now)
        for name, before, now in _pairs(expected, measured)
        if before != now
    ]
    mixed = {"win", "regression"} <= {deviation.kind for deviation in found}
    for deviation in found:
        moved = deviation.kind in ("win", "regression")
        yield replace(deviation, kind="changed") if mixed and moved else deviation


def compare_work(expected: int, measured: CountedWork | None) -> Iterator[Deviation]:
    """Yield a deviation if the Python calls of a planner call differ by more than noise.

    That is their spread, or 0.5 %: objects that are hashed by their addresses collide in some
    processes, and then Python compares them.
    """
    if measured is None:
        note = "its work was not counted"
        yield Deviation("python_calls", "inconclusive", expected, None, note)
    elif abs(measured.python_calls - expected) > max(measured.spread or 0, _NOISE * expected):
        now = measured.python_calls
        yield Deviation("python_calls", _direction(now < expected), expected, now)


def compare_ratios(
    expected: tuple[float, float], measured: tuple[float, float], note: str = ""
) -> Iterator[Deviation]:
    """Yield a deviation unless a ratio's interval lies within the expected interval.

    An interval that extends only below the expected one also passes, if they overlap.
    """
    kinds: dict[Place, Kind] = {"above": "regression", "below": "win", "across": "inconclusive"}
    kind = kinds.get(place(measured, expected))
    if kind and not (kind == "inconclusive" and measured[1] <= expected[1]):
        yield Deviation("ratio", kind, expected, measured, note if kind == "inconclusive" else "")


def _pairs(
    expected: Mapping[str, float], measured: Mapping[str, float]
) -> Iterator[tuple[str, float | None, float | None]]:
    for name in dict.fromkeys((*expected, *measured)):
        yield name, expected.get(name), measured.get(name)


def _one_sided(what: str, before: float | None, now: float | None) -> Deviation:
    return Deviation(what, "new" if before is None else "missing", before, now)


def _direction(gained: bool | None) -> Kind:
    return "changed" if gained is None else "win" if gained else "regression"
