"""Estimated memory is compared with the bytes that child processes count."""

from pathlib import Path

import pytest

from harness.contract.estimates import MemorySet, RankMemory
from harness.estimates.memory import MeasuredMemory, validate_memory
from harness.model.errors import ShardbenchError
from harness.store.lines import Store

TERMS = {"wide": {"weights": 80, "gradients": 8}, "": {"peak": 100}}
ESTIMATED = {"theirs": {"wide": {"weights": 40}, "": {"peak": 50}}, "ours": TERMS}


def count(job: dict[str, dict[str, int]], *_: object) -> dict[str, dict[str, int]]:
    return job


def fail(job: object, *_: object) -> dict[str, dict[str, int]]:
    raise ValueError("no such kernel")


def candidates(measure: object = count) -> MemorySet:
    rank = RankMemory("a plan", "adam", 3, measure, TERMS, ESTIMATED)  # type: ignore[arg-type]
    return MemorySet([rank], ["a note"], 1.0, "peak")


@pytest.fixture
def store(tmp_path: Path) -> Store[MeasuredMemory]:
    return Store(tmp_path / "memory.jsonl", "memory", MeasuredMemory)


def test_each_term_has_its_bytes_and_the_estimates_that_know_it(store) -> None:
    found = validate_memory("a problem", "CPU", 1, candidates(), seed=0, store=store)
    (rank,) = found.ranks
    assert (rank.decision, rank.setting, rank.rank) == ("a plan", "adam", 3)
    assert [(term.term, term.measured) for term in rank.terms] == [
        ("weights", 80),
        ("gradients", 8),
    ]
    assert [term.estimated for term in rank.terms] == [{"theirs": 40, "ours": 80}, {"ours": 8}]
    assert (found.errors("theirs"), found.errors("ours")) == ([0.5], [0.0])
    assert found.notes == ("a note",)
    again = validate_memory("a problem", "CPU", 1, candidates(fail), seed=0, store=store)
    assert again.ranks == found.ranks, "stored ranks are not measured again"


def test_a_failure_names_the_rank_and_the_reason(store) -> None:
    with pytest.raises(
        ShardbenchError, match=r"^Measuring rank 3 .* with adam failed: .*no such k"
    ):
        validate_memory("a problem", "CPU", 1, candidates(fail), seed=0, store=store)
