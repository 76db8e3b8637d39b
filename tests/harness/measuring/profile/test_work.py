"""The counted work of a call."""

import copy
import math
import shutil
from pathlib import Path

import pytest

from harness.contract import Prepared
from harness.measuring.jobs import Job
from harness.measuring.selftest.rounds import selftest_registry
from harness.measuring.work import instructions
from harness.measuring.work.count import count_work
from harness.measuring.work.instructions import check_valgrind, counted_by_valgrind
from harness.model.errors import ShardbenchError, UsageError
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import find_topology


def planner(items: int):
    def run() -> int:
        return sum(math.isqrt(abs(item)) for item in range(items))

    return Prepared(run)


def test_it_is_the_same_each_time():
    works = [count_work(planner(1000)) for _ in range(3)]
    assert len({work.python_calls for work in works}) == 1
    assert works[0].spread == 0


@pytest.mark.parametrize("items", [100, 1000])
def test_python_and_built_in_calls_are_counted(items: int):
    # run, sum, the generator that is entered once for each item and at its end, abs and isqrt
    assert count_work(planner(items)).python_calls == 2 + (items + 1) + 2 * items


def test_one_per_cent_more_is_seen():
    tables = [{"name": "a", "rows": [1, 2, 3]}] * 100
    before = count_work(Prepared(lambda: [copy.deepcopy(each) for each in tables]))
    after = count_work(Prepared(lambda: [copy.deepcopy(each) for each in [*tables, tables[0]]]))
    assert after.python_calls / before.python_calls == pytest.approx(1.01, abs=0.001)


def test_a_count_that_differs_says_by_how_much():
    calls = iter([10, 13, 10])
    work = count_work(Prepared(lambda: [abs(each) for each in range(next(calls, 10))]))
    assert work.spread == 3


def test_built_in_functions_have_their_share():
    mostly = count_work(Prepared(lambda: sorted(range(300_000), key=None)))
    hardly = count_work(Prepared(lambda: [None for _ in range(300_000)]))
    assert mostly.built_in_share > 0.8
    assert hardly.built_in_share < 0.2


def test_instructions_are_counted_or_not_said():
    work = count_work(planner(100_000))
    assert work.instructions is None or work.instructions > 1_000_000


def selftest_job() -> Job:
    topology = find_topology("dgx_a100_80gb", 1)
    return Job(selftest_registry, "selftest", WorkloadSpec("copies"), topology, 60.0, 60.0)


@pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")
def test_valgrind_counts_the_call_and_nothing_before_it():
    few, more = (
        counted_by_valgrind(selftest_job(), name, 300.0) for name in ("reference", "slower-10")
    )
    assert more / few == pytest.approx(1.1, abs=0.01)


@pytest.mark.parametrize(
    ("does", "seconds", "reason"),
    [
        ("echo no such variant >&2; exit 1", 60.0, "counted nothing: no such variant"),
        ("echo no such variant >&2", 60.0, "counted nothing: no such variant"),
        ("echo Collected : 0 >&2", 60.0, "counted nothing: Collected : 0"),
        ("echo Collected : 7 >&2; exit 1", 60.0, "counted nothing: Collected : 7"),
        ("exec sleep 600", 0.1, "took longer than 0.1 s"),
    ],
)
def test_what_valgrind_cannot_count_has_a_reason(
    does: str, seconds: float, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    valgrind = tmp_path / "valgrind"
    valgrind.write_text(f"#!/bin/sh\n{does}\n")
    valgrind.chmod(0o755)
    monkeypatch.setattr(instructions, "_VALGRIND", str(valgrind))
    with pytest.raises(ShardbenchError) as failed:
        counted_by_valgrind(selftest_job(), "reference", seconds)
    assert str(failed.value) == f"{valgrind} {reason}"


def test_without_valgrind_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UsageError, match="are needed, and are not on the path"):
        check_valgrind()
    monkeypatch.setattr(instructions, "_VALGRIND", "no-such-valgrind")
    with pytest.raises(ShardbenchError, match="no-such-valgrind: No such file"):
        counted_by_valgrind(selftest_job(), "reference", 1.0)
