"""The self-test: its family, its counts, and one real round."""

import copy

import pytest
from msgspec.structs import replace

from harness.contract.registry import load_registry
from harness.measuring import selftest
from harness.measuring.selftest import SLOWDOWNS, SelfTest, variant_of
from harness.model.cell import Cell, Ratio
from harness.model.ids import CellId, ProblemId, WorkloadSpec
from harness.model.settings import SamplingRule, Settings


@pytest.mark.parametrize("percent", SLOWDOWNS)
def test_the_work_is_exactly_so_much_more(percent, monkeypatch):
    """A slow-down of 5 % is 5 % more copies."""
    made = []
    monkeypatch.setattr(copy, "deepcopy", made.append)
    selftest.copies()
    reference = len(made)
    selftest.copies(percent_more=percent)
    assert 100 * (len(made) - reference) == (100 + percent) * reference


def test_a_round_is_measured_as_any_other_cell():
    """Each round compares the variants with its own seed; no list of families has them."""
    quick = Settings(60.0, SamplingRule(seconds=0.1, least_blocks=2, warmup_seconds=0.1))
    first, second = selftest.selftest(2, quick)
    assert [cell.variant for cell in first] == ["reference", *map(variant_of, SLOWDOWNS)]
    assert all(cell.status == "ok" for cell in first + second)
    assert all(cell.decision == "same" and cell.verdict for cell in first[1:])
    assert [cells[0].settings.sampling.seed for cells in (first, second)] == [0, 1]
    assert "selftest" not in [family.name for family in load_registry().families]


def cell_of(variant: str, verdict: str, reach: float, pairs: int) -> Cell:
    return Cell(
        id=CellId("selftest", variant, ProblemId(WorkloadSpec("copies"), "dgx_a100_80gb", 1)),
        reference="reference",
        status="ok",
        verdict=verdict,
        ratio=Ratio(1.0, 1 - reach, 1 + reach, pairs),
    )


def test_verdicts_are_counted_by_slow_down():
    """False alarms and slow-downs that were found come with what chance allows."""
    rounds = [
        [
            cell_of(variant_of(percent), verdict, reach, pairs)
            for percent, verdict in zip(SLOWDOWNS, verdicts, strict=True)
        ]
        for verdicts, reach, pairs in [
            (("same", "same", "slower", "slower"), 0.01, 10),
            (("faster", "same", "slower", "slower"), 0.02, 20),
            (("inconclusive", "inconclusive", "same", "slower"), 0.04, 60),
        ]
    ]
    result = SelfTest.of(rounds, 0.002, 30.0)
    assert (result.rounds, result.differing, result.undecided) == (3, 1, 1)
    assert result.found == {2: 0, 5: 2, 10: 3}
    assert (result.pairs, result.reach) == (20, pytest.approx(0.02))
    many = replace(result, rounds=100)
    assert many.in_a_hundred(0) == (0.0, pytest.approx(3.62, abs=0.01))
    assert many.in_a_hundred(100) == (pytest.approx(96.38, abs=0.01), 100.0)
