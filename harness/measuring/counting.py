"""Count the function calls in one call of a variant: a measure of work that is exact."""

from typing import Any

from harness.contract import Prepared
from harness.contract.calls import profiled
from harness.model.cell import CountedWork
from harness.model.settings import SamplingRule

PROFILED = 3.0
"""A call that is counted takes about this many times as long."""

_SHARE_FOR_COUNTING = 0.1


def affordable_counts(call_s: float, rule: SamplingRule) -> int:
    """Return how often, up to twice, a tenth of the time allows to count a call's work."""
    if not rule.counts_work:
        return 0
    return min(2, int(_SHARE_FOR_COUNTING * rule.seconds / (PROFILED * max(call_s, 1e-9))))


def count_work(prepared: Prepared[Any], is_counted_twice: bool = True) -> CountedWork:
    """Count the function calls in one or two untimed runs; return the lower count, and the spread.

    `spread` is the difference between the two counts, None for one run.
    """
    first, share = _count(prepared)
    if not is_counted_twice:
        return CountedWork(first, None, share)
    second, _ = _count(prepared)
    return CountedWork(min(first, second), abs(first - second), share)


def _count(prepared: Prepared[Any]) -> tuple[int, float]:
    """Return the number of calls in this thread, and the share of time in built-in functions."""
    with prepared.installed():
        prepared.begin()
        _, entries = profiled(prepared.run)
    calls = sum(entry.callcount for entry in entries) - 1  # the last one disables the profile
    seconds = sum(entry.inlinetime for entry in entries)
    built_in = sum(entry.inlinetime for entry in entries if isinstance(entry.code, str))
    return calls, min(1.0, built_in / seconds) if seconds > 0 else 0.0
