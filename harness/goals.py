"""Goals that a family sets itself, and how they stand: met, missed, projected or not measured."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.declarations import Quality
from harness.errors import RegistryError, UsageError
from harness.naming import ProblemId
from harness.storage.results import projected_speedup

OTHERS = "others"
MIB = 2**20
# Two sums of the same figures in different orders may differ by this share.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Goal:
    """What a variant is to reach on a problem; `text` is one clause that says so.

    `measure` is one of:

    - `times faster`: the time of `against` is at least `limit` times the variant's;
    - `seconds`: the median wall time is at most `limit` seconds;
    - `peak memory`: the peak of the variant is at most `limit` times that of `against`;
    - `quality`: the quality named so, one that is better lower, is at most `limit`, or with
      `against` at most `limit` times that variant's, or the best of the `others`.

    Without `against`, time and memory are set against the family's reference.
    """

    text: str
    problem: str
    variant: str
    measure: str
    limit: float
    against: str = ""
    quality: str = ""


def check_goals(
    family: str, goals: Iterable[Goal], variants: Collection[str], qualities: Sequence[Quality]
) -> None:
    """Raise RegistryError where a goal names what its family does not have."""
    for goal in goals:
        whose = f"Goal '{goal.text}' of family '{family}'"
        if goal.measure not in MEASURES:
            raise RegistryError(
                f"{whose} has measure '{goal.measure}'; allowed are: {', '.join(MEASURES)}."
            )
        named = {goal.variant, goal.against} - {""}
        if goal.measure == "quality" and goal.against == OTHERS:
            named.remove(OTHERS)
        for name in sorted(named.difference(variants)):
            raise RegistryError(f"{whose} names variant '{name}', which is not registered.")
        lower = {quality.name for quality in qualities if quality.better == "lower"}
        if (goal.measure == "quality") != bool(goal.quality) or goal.quality not in {"", *lower}:
            raise RegistryError(
                f"{whose} must name a quality that is better lower where that is its measure, and "
                f"only there, not '{goal.quality}'."
            )
        try:
            ProblemId.parse(goal.problem)
        except UsageError as error:
            raise RegistryError(f"{whose} is malformed: {error}") from None


Outcome = Literal[
    "met",
    "missed",
    "inconclusive",
    "projected to be met",
    "projected to be missed",
    "not measured",
]


@dataclass(frozen=True, slots=True)
class Standing:
    """How a goal stands: `value` beside `limit`, both in `unit`, or in words why there is none.

    `low` and `high` are the interval of the value; NaN where there is none. `sign` says that the
    true value is above or below.
    """

    outcome: Outcome
    value: float = math.nan
    limit: float = math.nan
    unit: str = ""
    low: float = math.nan
    high: float = math.nan
    sign: Literal["", "≥", "<", ">"] = ""
    reason: str = ""

    def measured(self, write: Callable[[float, str], str]) -> str:
        """Say what was measured, with numbers as `write` writes a value in its unit."""
        if self.outcome == "not measured":
            return self.reason
        told = f"{self.sign} {write(self.value, self.unit)}".strip()
        return told + (" (projected)" if self.outcome.startswith("projected") else "")


@dataclass(frozen=True, slots=True)
class _Case:
    """A goal with the cells of its problem: of its variant, of the `other` it is set against."""

    goal: Mapping[str, Any]
    cell: Mapping[str, Any]
    other: Mapping[str, Any]
    other_name: str
    cells: Mapping[str, Mapping[str, Any]]

    @property
    def limit(self) -> float:
        return float(self.goal["limit"])


_NOTHING: Mapping[str, Any] = {}


def standing(goal: Mapping[str, Any], cells: Mapping[str, Mapping[str, Any]]) -> Standing:
    """Return how a goal, as it is stored, stands by the stored cells of its problem by variant.

    A goal in time is met or missed where the whole interval says so, else it is inconclusive.
    """
    cell = cells.get(goal["variant"], _NOTHING)
    other = goal.get("against") or ("" if goal.get("quality") else cell.get("reference", ""))
    case = _Case(goal, cell, cells.get(other, _NOTHING), other, cells)
    return MEASURES[goal["measure"]](case)


def _faster(case: _Case) -> Standing:
    cell, other, limit = case.cell, case.other, case.limit
    ratio = cell.get("ratio")
    if ratio and cell.get("against") == case.other_name and cell.get("decision") != "different":
        low = 1 / ratio["high"] if ratio.get("high") else 0.0
        high = 1 / ratio["low"] if ratio.get("low") else math.inf
        outcome = _is(low >= limit) if low >= limit or high < limit else "inconclusive"
        return Standing(outcome, 1 / ratio["value"], limit, "times", low, high)
    if projected := projected_speedup(cell, other):
        outcome = "projected to be met" if projected >= limit else "projected to be missed"
        return Standing(outcome, projected, limit, "times", sign="≥")
    budget, spent = _budget(cell), _median(other)
    if budget and spent and spent / budget < limit:
        return Standing("missed", spent / budget, limit, "times", sign="<")
    return _not_measured(case)


def _seconds(case: _Case) -> Standing:
    if spent := _median(case.cell):
        return Standing(_is(spent <= case.limit), spent, case.limit, "s")
    budget = _budget(case.cell)
    if budget and budget >= case.limit:
        return Standing("missed", budget, case.limit, "s", sign=">")
    return _not_measured(case)


def _memory(case: _Case) -> Standing:
    """Compare peaks; that of a call over budget is the least that the whole call would have had."""
    mine, theirs = (each.get("peak_memory_bytes") for each in (case.cell, case.other))
    if mine and theirs:
        value, limit = mine / MIB, case.limit * theirs / MIB
        whole, other_is_whole = (each["status"] == "ok" for each in (case.cell, case.other))
        if (whole and value <= limit) or (other_is_whole and value > limit):
            return Standing(_is(value <= limit), value, limit, "MiB", sign="" if whole else "≥")
    return _not_measured(case)


def _quality(case: _Case) -> Standing:
    name, limit = case.goal["quality"], case.limit
    value = _value(case.cell, name)
    if case.other_name == OTHERS:
        rest = [cell for variant, cell in case.cells.items() if variant != case.goal["variant"]]
    else:
        rest = [case.other]
    found = [other for cell in rest if (other := _value(cell, name)) is not None]
    if value is None or (case.other_name and not found):
        return _not_measured(case)
    limit *= min(found) if case.other_name else 1
    return Standing(_is(value <= limit * (1 + _ROUNDING)), value, limit, _unit(case.cell, name))


MEASURES: Mapping[str, Callable[[_Case], Standing]] = {
    "times faster": _faster,
    "seconds": _seconds,
    "peak memory": _memory,
    "quality": _quality,
}


def _is(holds: bool) -> Outcome:
    return "met" if holds else "missed"


def _not_measured(case: _Case) -> Standing:
    for name, cell in ((case.goal["variant"], case.cell), (case.other_name, case.other)):
        if cell.get("decision") == "different":
            return Standing("not measured", reason=f"{name}: different decision")
        if name not in ("", OTHERS) and cell.get("status") != "ok":
            return Standing("not measured", reason=f"{name}: {cell.get('status', 'not run')}")
    return Standing("not measured", reason="nothing to compare it with")


def _value(cell: Mapping[str, Any], quality: str) -> float | None:
    held = cell.get("quality") or _NOTHING
    return held.get(quality) if cell.get("status") == "ok" else None


def _unit(cell: Mapping[str, Any], quality: str) -> str:
    named = {each["name"]: each for each in cell.get("qualities") or ()}
    return str(named.get(quality, _NOTHING).get("unit", ""))


def _median(cell: Mapping[str, Any]) -> float | None:
    """Wall seconds of a call."""
    measured = cell.get("wall_s") or _NOTHING
    return measured.get("median") if cell.get("status") == "ok" else None


def _budget(cell: Mapping[str, Any]) -> float | None:
    """Wall seconds that a call took at least, where it was stopped over its budget."""
    allowed = cell.get("settings") or _NOTHING
    return allowed.get("budget") if cell.get("status") == "over budget" else None
