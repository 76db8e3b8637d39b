"""The time that a verdict compares, and calls whose CPU time says too little."""

from typing import Any

import pytest
from fake_clock import FakeClock
from hypothesis import given, strategies as st
from sampled import CALL

from harness.contract import Prepared
from harness.measuring.filling import fill_from_times
from harness.measuring.timing.sampling import SamplingRequest, sample
from harness.model.cell import Cell, ClockName
from harness.model.ids import CellId
from harness.model.settings import SamplingRule

RULE = SamplingRule(seconds=1e9, warmup_seconds=1e9)


def judged(
    clock: FakeClock, reference: Prepared, variant: Prepared, compared: ClockName = "cpu"
) -> Cell:
    """Time a variant and its reference, and return the variant's cell."""
    request = SamplingRequest(
        {"reference": reference, "variant": variant},
        "reference",
        RULE,
        clock=clock,
        compared=compared,
    )
    times = sample(request)["variant"]
    cell_id = CellId.parse("toy/variant@toy/dgx_h100:8")
    cell = Cell(id=cell_id, reference="reference", status="ok", decision="same", clock=compared)
    fill_from_times(cell, times, RULE)
    return cell


def taking(clock: FakeClock, wall_s: float, cpu_s: float, **more: Any) -> Prepared[str]:
    def run() -> str:
        clock.advance(wall_s, cpu_s, **more)
        return "decided"

    return Prepared(run)


def value(cell: Cell) -> float:
    assert cell.ratio is not None
    return cell.ratio.value


@given(*[st.floats(0.1, 10)] * 4)
def test_a_family_compares_the_time_of_its_clock(wall, cpu, reference_wall, reference_cpu):
    """The ratio is that of wall times or that of CPU times, as the family says."""
    clock = FakeClock()
    pair = (taking(clock, reference_wall, reference_cpu), taking(clock, wall, cpu))
    of_cpu, of_wall = judged(clock, *pair), judged(clock, *pair, compared="wall")
    assert value(of_cpu) == pytest.approx(cpu / reference_cpu)
    assert value(of_wall) == pytest.approx(wall / reference_wall)
    assert of_cpu.compared_s == of_cpu.cpu_s
    assert of_wall.compared_s == of_wall.wall_s


@pytest.mark.parametrize("who_waits", ["reference", "variant"])
def test_cpu_time_gives_no_verdict_on_a_call_that_waits(clock: FakeClock, who_waits: str):
    """A call that mostly waits, or works where nothing is counted, is neither faster nor slower."""
    calls = [taking(clock, CALL, CALL), taking(clock, CALL, CALL / 100, waits=1)]
    if who_waits == "reference":
        calls.reverse()
    cell = judged(clock, *calls)
    assert cell.verdict == "inconclusive"
    assert ("of reference" in cell.verdict_reason) == (who_waits == "reference")
    by_wall_time = judged(clock, *calls, compared="wall")
    assert by_wall_time.verdict == "same"


def test_a_busy_machine_takes_no_verdict_away(clock: FakeClock):
    """Wall time that other programs took is no waiting, because the call never gave its core up."""
    cell = judged(clock, taking(clock, 20 * CALL, CALL), taking(clock, 20 * CALL, CALL / 2))
    assert cell.verdict == "faster"


@pytest.mark.parametrize("leaves", ["in set-up", "in its first call", "nothing"])
def test_a_variant_with_helpers_of_its_own_is_not_forked(clock: FakeClock, monkeypatch, leaves):
    """A variant whose threads or processes go on has a remark, because a fork lacks them."""
    running = [3]
    monkeypatch.setattr("harness.measuring.timing.turns.helpers", lambda: running[-1])
    monkeypatch.setattr("harness.measuring.timing.sampling.helpers", lambda: running[-1])

    def run() -> str:
        if leaves == "in its first call" and len(running) == 1:
            running.append(4)
        clock.advance(CALL)
        return "decided"

    variant = Prepared(run, may_fork=leaves != "in set-up")
    cell = judged(clock, taking(clock, CALL, CALL), variant)
    assert bool(cell.remark) == (leaves != "nothing")
    assert cell.verdict == "same"
