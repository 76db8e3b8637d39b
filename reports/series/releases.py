"""The history of a library over its releases: what each one costs more than the one before."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from packaging.version import Version

from harness.contract.abilities.releases import Releases
from harness.model.cell import Cell, Environment, by_problem
from harness.series.variants import CALLS, calls_of
from reports.core.formatting import listing, number, seconds

# A step in the number of calls that is worth a sentence.
_STEP = 1.2
_MOST_MAKERS = 3
_MOST_SHARE = 0.8


class Span(NamedTuple):
    """Median of some CPU seconds, and the least and the most of them."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Release:
    """One release on one problem, by its cell; `decision` compares it with the one before.

    `reason` says why it was not run; then there is nothing else.
    """

    cell: Cell
    profiled_phase: str
    decision: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        """The release."""
        return self.cell.variant

    @cached_property
    def calls(self) -> dict[str, int]:
        """Calls while the profiled phase runs, by the function that makes them."""
        return calls_of(self.cell)

    @cached_property
    def all_calls(self) -> int:
        """Calls of the profiled phase, by whomever."""
        return sum(self.calls.values())

    @property
    def counters(self) -> dict[str, int]:
        """What else was counted."""
        return {k: v for k, v in self.cell.counters.items() if not k.startswith(CALLS)}

    @property
    def profiled(self) -> Span | None:
        """CPU seconds of the phase whose calls are counted, by its share in the call counted.

        None where it was not timed.
        """
        return self._span(self._share)

    @property
    def rest(self) -> Span | None:
        """CPU seconds of all other phases."""
        return self._span(1 - self._share)

    @property
    def _share(self) -> float:
        phases = self.cell.phases
        whole = sum(phases.values())
        return phases.get(self.profiled_phase, 0.0) / whole if whole else 0.0

    def _span(self, share: float) -> Span | None:
        spent = self.cell.cpu_s
        if spent is None:
            return None
        return Span(share * spent.median, share * min(spent.samples), share * max(spent.samples))


@dataclass(frozen=True)
class Chapter:
    """All releases on one problem, oldest first."""

    problem: str
    profiled: str
    releases: tuple[Release, ...]

    @property
    def run(self) -> tuple[Release, ...]:
        """The releases that were run."""
        return tuple(each for each in self.releases if not each.reason)

    @property
    def rounds(self) -> int:
        """How often each release was timed at most."""
        timed = (each.cell.cpu_s for each in self.run)
        return max((len(spent.samples) for spent in timed if spent), default=0)

    @property
    def environment(self) -> Environment:
        """What the last of them was measured in."""
        return self.releases[-1].cell.environment

    @property
    def load(self) -> float:
        """The highest load per core of the machine while they were measured."""
        return max((each.cell.environment.load or 0.0 for each in self.run), default=0.0)

    def steps(self) -> Iterator[tuple[Release, Release]]:
        """Yield each release that was run with the one before."""
        yield from zip(self.run, self.run[1:], strict=False)


def chapters(declared: Releases, cells: Sequence[Cell]) -> list[Chapter]:
    """Return a chapter for each problem of some cells."""
    return [
        _chapter(declared, str(problem), sorted(found.values(), key=lambda c: Version(c.variant)))
        for problem, found in by_problem(cells).items()
    ]


def _chapter(declared: Releases, problem: str, cells: Sequence[Cell]) -> Chapter:
    found: list[Release] = []
    before: Cell | None = None
    for cell in cells:
        if cell.status != "ok":
            reason = (cell.reason or cell.status).rstrip(".") + "."
            found.append(Release(cell, declared.profiled, reason=reason))
            continue
        same = before is None or before.fingerprint == cell.fingerprint
        decision = "first" if before is None else "same" if same else "changed"
        if same and before is not None and before.quality != cell.quality:
            decision = "same*"
        before = cell
        found.append(Release(cell, declared.profiled, decision))
    return Chapter(problem, declared.profiled, tuple(found))


def makers(chapter: Chapter) -> dict[str, dict[str, int]]:
    """Return by release the calls by the module that makes them, the greatest modules first."""
    found: dict[str, dict[str, int]] = {}
    for each in chapter.run:
        modules: Counter[str] = Counter()
        for function, calls in each.calls.items():
            modules[function.partition(".")[0]] += calls
        found[each.name] = dict(modules.most_common())
    return found


def history_findings(chapter: Chapter) -> list[str]:
    """Say in sentences what changed from release to release on a problem."""
    missed = [f"{each.name} was not run: {each.reason}" for each in chapter.releases if each.reason]
    said = [text for before, after in chapter.steps() if (text := _step(chapter, before, after))]
    return [*missed, *said, *_whole(chapter), *_counters(chapter), *_decisions(chapter)]


def _step(chapter: Chapter, before: Release, after: Release) -> str:
    one, two = before.all_calls, after.all_calls
    if not one or 1 / _STEP < two / one < _STEP:
        return ""
    text = (
        f"{after.name}: {chapter.profiled} makes {_ratio(two / one)} times the calls of "
        f"{before.name} ({two:,} after {one:,})"
    )
    makers = changed_makers(before.calls, after.calls) if two > one else ""
    return f"{text}; {makers}." if makers else f"{text}."


def changed_makers(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Say which functions make most of the calls that were added, or made most of those saved.

    Empty where none were.
    """
    added = sum(after.values()) >= sum(before.values())
    changed = Counter(after) - Counter(before) if added else Counter(before) - Counter(after)
    told: list[str] = []
    covered = 0
    for name, calls in changed.most_common(_MOST_MAKERS):
        told.append(f"{name} ({calls:,})")
        covered += calls
        if covered >= _MOST_SHARE * changed.total():
            break
    if not told:
        return ""
    share = 100 * covered / changed.total()
    what = "added are" if added else "saved were"
    return f"{share:.0f} % of those {what} made by {listing(told)}"


def _whole(chapter: Chapter) -> list[str]:
    if len(chapter.run) < 2 or not chapter.run[0].all_calls:
        return []
    first, last = chapter.run[0], chapter.run[-1]
    ratio = last.all_calls / first.all_calls
    text = f"From {first.name} to {last.name}: {_ratio(ratio)} times the calls"
    if first.profiled and last.profiled and first.profiled.median:
        in_time = last.profiled.median / first.profiled.median
        text += (
            f", and {_ratio(in_time)} times the CPU time of {chapter.profiled} "
            f"({seconds(first.profiled.median)} to {seconds(last.profiled.median)})"
        )
    if last.cell.ratio and last.cell.verdict != "inconclusive":
        low, high = (_ratio(each) for each in last.cell.ratio.interval)
        text += f"; the whole takes {_ratio(last.cell.ratio.value)} times as long ({low} to {high})"
    return [f"{text}."]


def _counters(chapter: Chapter) -> list[str]:
    said = []
    for before, after in chapter.steps():
        old, new = before.counters, after.counters
        changed = [
            f"{name} {old.get(name, 0):,} to {new.get(name, 0):,}"
            for name in dict.fromkeys([*old, *new])
            if old.get(name, 0) != new.get(name, 0)
        ]
        if changed:
            said.append(f"{after.name}: {listing(changed, most=9)}.")
    return said


def _decisions(chapter: Chapter) -> list[str]:
    if len(chapter.run) < 2:
        return []
    changed = [each.name for each in chapter.run if each.decision == "changed"]
    estimated = [each.name for each in chapter.run if each.decision == "same*"]
    said = (
        [f"{listing(changed, most=9)} decided otherwise than the release before."]
        if changed
        else [f"All {len(chapter.run)} releases decide the same."]
    )
    if estimated:
        said.append(f"* {listing(estimated, most=9)}: the same decision with another estimate.")
    return said


def _ratio(value: float) -> str:
    return number(float(value), trim=True)


def ratio_to(one: Release | None, other: Release) -> float:
    """Return how many times the calls of `one` the other makes; NaN where that is not known."""
    if one is None or not one.all_calls:
        return math.nan
    return other.all_calls / one.all_calls


def times_text(ratio: float) -> str:
    """Write a ratio with three digits, or a dash where there is none."""
    return f"{ratio:#.3g}".rstrip(".") if math.isfinite(ratio) else "-"


def history_rows(chapter: Chapter, counters: Mapping[str, str]) -> list[dict[str, str | float]]:
    """Return a chapter as rows of a CSV file: counts, ratios, CPU seconds, the reason if any."""
    found: list[dict[str, str | float]] = []
    before: Release | None = None
    for each in chapter.releases:
        row: dict[str, str | float] = {"problem": chapter.problem, "release": each.name}
        if not each.reason:
            row["calls"] = each.all_calls
            row["times_previous"] = ratio_to(before, each)
            row["times_oldest"] = ratio_to(chapter.run[0], each)
            for name, span in (("profiled", each.profiled), ("rest", each.rest)):
                if span is not None:
                    row[f"{name}_cpu_s"] = span.median
                    row[f"{name}_cpu_s_low"] = span.low
                    row[f"{name}_cpu_s_high"] = span.high
            if each.cell.ratio:
                row["ratio"] = each.cell.ratio.value
                row["ratio_low"], row["ratio_high"] = each.cell.ratio.interval
            row |= {name: each.counters.get(name, 0) for name in counters}
            row |= {**each.cell.quality, "fingerprint": each.cell.fingerprint or ""}
            row["decision"] = each.decision.rstrip("*")
            before = each
        row["not_run"] = each.reason
        found.append(row)
    return found
