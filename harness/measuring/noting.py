"""What was found out about a cell, noted on it: its check, its times, or why there are none."""

from dataclasses import asdict

from harness.execution.messages import Failed
from harness.measuring.check import Checked
from harness.measuring.monitor import OverBudget
from harness.measuring.sampling import SamplingRule, Times
from harness.measuring.verdict import explain, judge
from harness.storage.results import Cell, summary


def note_check(cell: Cell, checked: Checked, facts: dict[str, float | str]) -> None:
    """Note what the checked call showed, and what is to be said about its problem."""
    cell.fingerprint = checked.fingerprint
    cell.quality = dict(checked.quality)
    cell.counters = dict(checked.counters)
    cell.phases = dict(checked.phases)
    cell.peak_memory_bytes = checked.peak_memory_bytes
    cell.memory_before_bytes = checked.memory_before_bytes
    cell.ranks = asdict(checked.ranks) if checked.ranks else None
    cell.facts = facts
    cell.size_name, cell.size = _size(facts)


def _size(facts: dict[str, float | str]) -> tuple[str | None, float | None]:
    name = next(iter(facts), None)
    if name is None:
        return None, None
    value = facts[name]
    return (name, float(value)) if isinstance(value, int | float) else (None, None)


def note_failure(cell: Cell, outcome: Failed | OverBudget) -> None:
    """Note why a call did not end, or why there was none."""
    if isinstance(outcome, OverBudget):
        cell.status = "over budget"
        cell.reason = f"stopped after {outcome.elapsed_s:.0f} s"
        cell.projection_s = outcome.projection()
        cell.peak_memory_bytes = outcome.peak_memory_bytes or cell.peak_memory_bytes
        if outcome.last:
            cell.progress = {**asdict(outcome.last[1]), "elapsed_s": outcome.last[0]}
    else:
        # One that passed its check has a part in this, whatever it says later.
        has_no_part = outcome.cause == "not applicable" and cell.fingerprint is None
        cell.status = "not applicable" if has_no_part else "failed"
        cell.reason = outcome.reason
        cell.output = (outcome.output or None) if cell.status == "failed" else None


def note_times(cell: Cell, times: Times, reference: Times | None, rule: SamplingRule) -> None:
    """Note times, and the verdict over those of the reference, where there are some."""
    cell.wall_s, cell.cpu_s = summary(times.wall_s), summary(times.cpu_s)
    cell.thread_cpu_s = summary(times.thread_cpu_s)
    if cell.decision == "reference" or reference is None:
        return
    if cell.decision is None:
        cell.verdict_reason = "nothing to compare the decision with"
        return
    try:
        ratio = times.ratio_to(reference)
    except ValueError as error:
        cell.verdict, cell.verdict_reason = "inconclusive", str(error)
        return
    if ratio is not None:
        cell.ratio = asdict(ratio)
        cell.verdict = judge(ratio, rule.noise_floor)
        ended = rule.why_ended(len(times.blocks))
        cell.verdict_reason = explain(ratio, rule.noise_floor, ended)
