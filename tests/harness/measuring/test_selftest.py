"""The self-test: its family, its counts, and one real round."""

import copy

import pytest

from harness.measuring.selftest import rounds as selftest
from harness.measuring.selftest.file import SelfTest
from harness.measuring.selftest.rounds import SLOWDOWNS, Tally, share_interval, tallies, variant_of
from harness.model.cell import Cell, Ratio
from harness.model.ids import CellId, ProblemId, WorkloadSpec
from harness.model.settings import SamplingRule, Settings

QUICK = Settings(60.0, SamplingRule(seconds=0.1, least_blocks=2, warmup_seconds=0.1))


@pytest.mark.parametrize("percent", SLOWDOWNS)
def test_the_work_is_exactly_so_much_more(percent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(copy, "deepcopy", made.append)
    selftest.copies()
    reference = len(made)
    selftest.copies(percent_more=percent)
    assert 100 * (len(made) - reference) == (100 + percent) * reference


def test_a_round_is_measured_as_any_other_cell() -> None:
    first, second = selftest.selftest(2, QUICK)
    assert [cell.variant for cell in first] == ["reference", *map(variant_of, SLOWDOWNS)]
    assert all(cell.status == "ok" for cell in first + second)
    assert all(cell.decision == "same" and cell.verdict for cell in first[1:])
    assert [cells[0].settings.sampling.seed for cells in (first, second)] == [0, 1]
    assert [tally.rounds for tally in tallies([first, second])] == [2] * len(SLOWDOWNS)


def test_it_is_in_no_list() -> None:
    from harness.contract.registry import load_registry

    assert "selftest" not in [family.name for family in load_registry().families]


def cell_of(variant: str, verdict: str, low: float, high: float, pairs: int) -> Cell:
    return Cell(
        id=CellId("selftest", variant, ProblemId(WorkloadSpec("copies"), "dgx_a100_80gb", 1)),
        reference="reference",
        status="ok",
        verdict=verdict,
        ratio=Ratio(1.0, low, high, pairs),
    )


def test_verdicts_are_counted_by_slow_down() -> None:
    rounds = [
        [cell_of(variant_of(percent), verdict, 1 - reach, 1 + reach, pairs)
         for percent, verdict in zip(SLOWDOWNS, verdicts, strict=True)]
        for verdicts, reach, pairs in [
            (("same", "same", "slower", "slower"), 0.01, 10),
            (("faster", "same", "slower", "slower"), 0.02, 20),
            (("slower", "inconclusive", "same", "slower"), 0.04, 60),
        ]
    ]  # fmt: skip
    identical, two, five, ten = tallies(rounds)
    assert (identical.differs, identical.found, identical.rounds) == (2, 1, 3)
    assert two.verdicts == {"same": 2, "inconclusive": 1}
    assert (five.found, ten.found) == (2, 3)
    assert (ten.pairs, ten.reach) == (20, pytest.approx(0.02))


def test_a_share_comes_with_what_chance_allows() -> None:
    assert share_interval(0, 100) == (0.0, pytest.approx(0.0362, abs=1e-4))
    assert share_interval(100, 100) == (pytest.approx(0.9638, abs=1e-4), 1.0)
    tally = Tally(5, {"slower": 97, "same": 3}, 30, 0.01)
    low, high = tally.in_a_hundred(tally.found)
    assert 91 < low < 97 < high < 99.5


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({3: 7, 5: 10, 10: 10}, "5 % more work was found 10 times of 10, "),
        ({3: 10}, "3 % more work was found 10 times of 10, "),
        ({}, "calls of 2 ms: identical"),
    ],
)
def test_a_summary_tells_what_was_added(found: dict[int, int], told: str) -> None:
    summary = SelfTest(
        "a machine", "2026-11-23T05:01:13Z", 0.7, 0.002, "turns", 10, 9.4, 1, 0, found,
        reach=0.01, pair_spread=0.1, process_spread=0.01,
    )  # fmt: skip
    assert told in summary.sentence()
    assert summary.sentence().endswith("called different 1 times of 10.")
