"""Estimated memory is compared with the bytes that child processes count."""

from pathlib import Path

import pytest

from harness.contract.estimates import MemorySet, RankMemory
from harness.estimates.memory import MeasuredMemory, MemoryValidation, validate_memory
from harness.model.errors import ShardbenchError
from harness.store.lines import Store

TERMS = {"wide": {"weights": 80, "gradients": 8}, "": {"peak": 100}}
ESTIMATED = {"theirs": {"wide": {"weights": 40}, "": {"peak": 50}}, "ours": TERMS}


def count(job: dict[str, dict[str, int]], *_: object) -> dict[str, dict[str, int]]:
    return job


def fail(job: object, *_: object) -> dict[str, dict[str, int]]:
    raise ValueError("no such kernel")


def validated(folder: Path, measure: object) -> MemoryValidation:
    rank = RankMemory("a plan", "adam", 3, measure, TERMS, ESTIMATED)
    candidates = MemorySet([rank], ["a note"], 1.0, "peak")
    store = Store(folder / "memory.jsonl", "memory", MeasuredMemory)
    return validate_memory("a problem", "CPU", 1, candidates, seed=0, store=store)


def test_each_term_has_its_bytes_and_the_estimates_that_know_it(tmp_path: Path) -> None:
    """Measured ranks are stored, and not measured again."""
    validation = validated(tmp_path, count)
    (rank,) = validation.ranks
    assert (rank.decision, rank.setting, rank.rank) == ("a plan", "adam", 3)
    terms = {term.term: (term.measured, term.estimated) for term in rank.terms}
    assert terms == {
        "weights": (80, {"theirs": 40, "ours": 80}),
        "gradients": (8, {"ours": 8}),
    }
    assert (validation.errors("theirs"), validation.errors("ours")) == ([0.5], [0.0])
    assert validation.notes == ("a note",)
    assert validated(tmp_path, fail).ranks == validation.ranks, "they are not measured again"


def test_a_failure_names_the_rank_and_the_reason(tmp_path: Path) -> None:
    """A rank that cannot be measured ends the validation with one sentence."""
    reason = r"^Measuring rank 3 .* with adam failed: .*no such k"
    with pytest.raises(ShardbenchError, match=reason):
        validated(tmp_path, fail)
