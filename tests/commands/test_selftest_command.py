import json
from pathlib import Path

from harness.measuring.environment import environment
from harness.measuring.selftest import SELFTESTS, last_selftests

SHORT = ("--rounds", "1", "--seconds", "0.1")


def test_it_says_what_this_machine_resolves(shardbench) -> None:
    code, printed, _ = shardbench("selftest", *SHORT, "--json", "selftest.json")
    assert code == 0
    assert " of 1 " in printed
    assert "This machine resolves" in printed
    assert max(map(len, printed.splitlines())) <= 90
    document = json.loads(Path("selftest.json").read_text())
    (tested,) = document["selftests"]
    assert list(tested["found"]) == ["2", "5", "10"]
    assert (tested["rounds"], tested["call_seconds"]) == (1, 0.002)
    assert document["environment"]["cores"] >= 1


def test_what_it_found_is_kept_and_quoted(shardbench) -> None:
    lengths = ("--call", "0.002", "--call", "0.05", "--way", "side-by-side")
    code, printed, _ = shardbench("selftest", *SHORT, *lengths)
    assert code == 0
    assert "calls of 2 ms, side by side" in printed
    assert "calls of 50 ms, side by side" in printed
    machine = environment(0).machine or ""
    with SELFTESTS.open("a") as file:
        file.write('{"machine": "torn')
    found = last_selftests(machine)
    assert [each.call_seconds for each in found] == [0.002, 0.05]
    assert f"Self-test of {found[0].started[:10]} on this machine" in found[0].sentence()
    assert last_selftests("another") == []
    cell = "dimspec/path-cache@random[conversions=5]/dgx_h100:4"
    _, out, _ = shardbench("compare", cell, "--seconds", "0.1", "--details")
    shown = " ".join(out.split())
    assert found[0].sentence() in shown
    assert "How ratios were taken" in shown
