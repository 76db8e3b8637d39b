"""Fill a cell from its check, its times, or the reason of a failure."""

from msgspec.structs import replace

from harness.execution.worker import Failed
from harness.measuring.check import Checked
from harness.measuring.monitor import OverBudget
from harness.measuring.timing.times import Times
from harness.measuring.timing.verdict import explain, judge
from harness.model.cell import Cell, Summary
from harness.model.settings import SamplingRule

_NO_FORK = (
    "timed in one process, because a fork lacks the threads, processes or devices that it uses"
)
_WAITS = (
    "takes far more wall time than CPU time: it waits, or works where its CPU time is not counted; "
    'a family with clock="wall" compares wall time'
)


def fill_from_check(cell: Cell, checked: Checked, facts: dict[str, float | str]) -> None:
    """Fill a cell with the figures of its checked call and the facts about its problem."""
    cell.fingerprint = checked.fingerprint
    cell.quality = dict(checked.quality)
    cell.counters = dict(checked.counters)
    cell.phases = dict(checked.phases)
    cell.peak_memory_bytes = checked.peak_memory_bytes
    cell.memory_before_bytes = checked.memory_before_bytes
    cell.ranks = checked.ranks
    cell.front = checked.front
    cell.facts = facts
    name, value = next(iter(facts.items()), ("", ""))
    if isinstance(value, int | float):
        cell.size_name, cell.size = name, float(value)


def fill_from_failure(cell: Cell, outcome: Failed | OverBudget) -> None:
    """Fill a cell with the reason why its check or its timing failed or was stopped."""
    if isinstance(outcome, OverBudget):
        cell.status = "over budget"
        cell.reason = f"stopped after {outcome.elapsed_s:.0f} s"
        cell.projection_s = outcome.projection()
        cell.peak_memory_bytes = outcome.peak_memory_bytes or cell.peak_memory_bytes
        if outcome.last:
            elapsed_s, progress = outcome.last
            cell.progress = replace(progress, elapsed_s=elapsed_s)
    else:
        # A variant that passed its check is applicable, even if it raises NotApplicable later.
        has_no_part = outcome.cause == "not applicable" and cell.fingerprint is None
        cell.status = "not applicable" if has_no_part else "failed"
        cell.reason = outcome.reason
        cell.output = (outcome.output or None) if cell.status == "failed" else None


def fill_from_times(cell: Cell, times: Times, rule: SamplingRule) -> None:
    """Fill a cell with its times and, if there are times to compare with, its ratio and verdict."""
    reference = times.reference
    cell.wall_s, cell.cpu_s = Summary.of(times.wall_s), Summary.of(times.cpu_s)
    cell.thread_cpu_s, cell.work = Summary.of(times.thread_cpu_s), times.work
    if times.clock == "wall":
        cell.remark = "its ratio compares wall time"
    elif times.warm and not times.warm.may_fork:
        cell.remark = _NO_FORK
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
        cell.ratio = ratio
        cell.verdict = judge(ratio, rule.noise_floor)
        ended = rule.why_ended(len(times.blocks))
        cell.verdict_reason = explain(ratio, rule.noise_floor, ended)
        calls = {"a call": times.warm, f"a call of {cell.against}": reference.warm}
        waiting = [whose for whose, call in calls.items() if call and call.waits]
        if waiting and times.clock == "cpu":
            cell.verdict, cell.verdict_reason = "inconclusive", f"{waiting[0]} {_WAITS}"
