"""The history of a library over its releases: what each one costs more than the one before."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from harness.contract.releases import Releases
from harness.releases.history import Counts, History, Round
from reports.formatting import listing, number, seconds

# A step in the number of calls that is worth a sentence.
_STEP = 1.2
_MOST_MAKERS = 3
_MOST_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Span:
    """Median of some CPU seconds, and the least and the most of them."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return seconds(self.median)


@dataclass(frozen=True, slots=True)
class Release:
    """One release on one problem; `counts` is None where it was not run, and `reason` says why.

    `profiled` are CPU seconds of the phase whose calls are counted, `rest` those of all others.
    """

    name: str
    counts: Counts | None = None
    profiled: Span | None = None
    rest: Span | None = None
    decision: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Chapter:
    """All releases on one problem, oldest first; `rounds` are those that all took part in."""

    problem: str
    profiled: str
    releases: tuple[Release, ...]
    rounds: tuple[Round, ...]

    @property
    def run(self) -> tuple[Release, ...]:
        """The releases that were run."""
        return tuple(each for each in self.releases if each.counts is not None)

    @property
    def load(self) -> float:
        """The highest machine load per core of the rounds; NaN without any."""
        return max((each.load for each in self.rounds), default=math.nan)

    def steps(self) -> Iterator[tuple[Release, Release]]:
        """Yield each release that was run with the one before."""
        yield from zip(self.run, self.run[1:], strict=False)


def chapters(
    declared: Releases, history: History, problems: Sequence[str], releases: Sequence[str]
) -> list[Chapter]:
    """Return what a history holds of these problems and releases."""
    ordered = sorted(dict.fromkeys(releases), key=Version)
    return [_chapter(declared, history, problem, ordered) for problem in problems]


def _chapter(
    declared: Releases, history: History, problem: str, releases: Sequence[str]
) -> Chapter:
    counted = {each: history.counts.get((problem, each)) for each in releases}
    run = {each for each, counts in counted.items() if counts is not None}
    failed = {
        each: missed
        for each in releases
        if (missed := history.not_run.get((problem, each)) or history.not_run.get(("", each)))
    }
    rounds = tuple(history.rounds_of(problem, run - set(failed)))
    found: list[Release] = []
    before: Counts | None = None
    for each in releases:
        counts = counted[each]
        if counts is None or each in failed:
            reason = failed[each].reason if each in failed else "not measured yet."
            found.append(Release(each, reason=reason))
            continue
        same = before is None or before.fingerprint == counts.fingerprint
        decision = "first" if before is None else "same" if same else "changed"
        if same and before is not None and before.quality != counts.quality:
            decision = "same*"
        before = counts
        found.append(
            Release(
                each,
                counts,
                _span([_part(each, turn, declared.profiled) for turn in rounds]),
                _span([_rest(each, turn, declared.profiled) for turn in rounds]),
                decision,
            )
        )
    return Chapter(problem, declared.profiled, tuple(found), rounds)


def _part(release: str, turn: Round, phase: str) -> float:
    return turn.times[release].phases.get(phase, 0.0)


def _rest(release: str, turn: Round, phase: str) -> float:
    return sum(v for name, v in turn.times[release].phases.items() if name != phase)


def _span(values: Sequence[float]) -> Span | None:
    return Span(statistics.median(values), min(values), max(values)) if values else None


def makers(chapter: Chapter) -> dict[str, dict[str, int]]:
    """Return by release the calls by the module that makes them, the greatest modules first."""
    found: dict[str, dict[str, int]] = {}
    for each in chapter.run:
        assert each.counts is not None
        modules: dict[str, int] = {}
        for function, calls in each.counts.calls.items():
            module = function.partition(".")[0]
            modules[module] = modules.get(module, 0) + calls
        found[each.name] = dict(sorted(modules.items(), key=lambda item: -item[1]))
    return found


def findings(chapter: Chapter) -> list[str]:
    """Say in sentences what changed from release to release on a problem."""
    said = [text for before, after in chapter.steps() if (text := _step(chapter, before, after))]
    said += _whole(chapter)
    said += _counters(chapter)
    said += _decisions(chapter)
    return said


def _step(chapter: Chapter, before: Release, after: Release) -> str:
    assert before.counts is not None
    assert after.counts is not None
    one, two = before.counts.all_calls, after.counts.all_calls
    if not one or 1 / _STEP < two / one < _STEP:
        return ""
    text = (
        f"{after.name}: {chapter.profiled} makes {_ratio(two / one)} times the calls of "
        f"{before.name} ({two:,} after {one:,})"
    )
    grown = {
        name: calls - before.counts.calls.get(name, 0)
        for name, calls in after.counts.calls.items()
        if calls > before.counts.calls.get(name, 0)
    }
    if two < one or not grown:
        return f"{text}."
    told: list[str] = []
    covered = 0
    for name in sorted(grown, key=lambda each: -grown[each])[:_MOST_MAKERS]:
        told.append(f"{name} ({grown[name]:,})")
        covered += grown[name]
        if covered >= _MOST_SHARE * sum(grown.values()):
            break
    share = 100 * covered / sum(grown.values())
    return f"{text}; {share:.0f} % of those added are made by {listing(told)}."


def _whole(chapter: Chapter) -> list[str]:
    if len(chapter.run) < 2:
        return []
    first, last = chapter.run[0], chapter.run[-1]
    assert first.counts is not None
    assert last.counts is not None
    if not first.counts.all_calls:
        return []
    ratio = last.counts.all_calls / first.counts.all_calls
    text = f"From {first.name} to {last.name}: {_ratio(ratio)} times the calls"
    if first.profiled and last.profiled and first.profiled.median:
        in_time = last.profiled.median / first.profiled.median
        text += (
            f", and {_ratio(in_time)} times the CPU time of {chapter.profiled} "
            f"({first.profiled} to {last.profiled})"
        )
    return [f"{text}."]


def _counters(chapter: Chapter) -> list[str]:
    said = []
    for before, after in chapter.steps():
        assert before.counts is not None
        assert after.counts is not None
        old, new = before.counts.counters, after.counts.counters
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
    if one is None or one.counts is None or other.counts is None or not one.counts.all_calls:
        return math.nan
    return other.counts.all_calls / one.counts.all_calls


def times_text(ratio: float) -> str:
    """Write a ratio with three digits, or a dash where there is none."""
    return f"{ratio:#.3g}".rstrip(".") if math.isfinite(ratio) else "-"


def rows(chapter: Chapter, counters: Mapping[str, str]) -> list[dict[str, str | float]]:
    """Return a chapter as rows of a CSV file: counts, ratios, CPU seconds, the reason if any."""
    found: list[dict[str, str | float]] = []
    before: Release | None = None
    for each in chapter.releases:
        row: dict[str, str | float] = {"problem": chapter.problem, "release": each.name}
        if each.counts is not None:
            row["calls"] = each.counts.all_calls
            row["times_previous"] = ratio_to(before, each)
            row["times_oldest"] = ratio_to(chapter.run[0], each)
            for name, span in (("profiled", each.profiled), ("rest", each.rest)):
                if span is not None:
                    row[f"{name}_cpu_s"] = span.median
                    row[f"{name}_cpu_s_low"] = span.low
                    row[f"{name}_cpu_s_high"] = span.high
            row |= {name: each.counts.counters.get(name, 0) for name in counters}
            row |= {**each.counts.quality, "fingerprint": each.counts.fingerprint}
            row["decision"] = each.decision.rstrip("*")
            before = each
        row["not_run"] = each.reason
        found.append(row)
    return found
