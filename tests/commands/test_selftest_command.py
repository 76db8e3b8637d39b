"""`shardbench selftest`: what it prints, writes, and keeps for later commands."""

import json
from pathlib import Path

from harness.measuring.environment import environment
from harness.measuring.selftest import SELFTESTS, last_selftests


def test_what_this_machine_resolves_is_said_written_and_quoted_later(shardbench) -> None:
    """Later measurements on this machine quote its last self-tests, past a damaged line."""
    lengths = ("--call", "0.002", "--call", "0.003", "--way", "side-by-side", "--added", "10")
    short = ("--rounds", "1", "--seconds", "0.1", "--json", "selftest.json")
    code, printed, _ = shardbench("selftest", *short, *lengths)
    assert (code, printed.count("This machine resolves")) == (0, 2)
    assert "calls of 3 ms, side by side" in printed
    document = json.loads(Path("selftest.json").read_text())
    assert [list(tested["found"]) for tested in document["selftests"]] == [["10"]] * 2
    assert document["environment"]["cores"] >= 1
    machine = environment(0).machine or ""
    with SELFTESTS.open("a") as file:
        file.write('{"machine": "torn')
    quoted = last_selftests(machine)
    assert [each.call_seconds for each in quoted] == [0.002, 0.003]
    assert last_selftests("another") == []
    cell = "dimspec/path-cache@random[conversions=5]/dgx_h100:4"
    _, out, _ = shardbench("compare", cell, "--seconds", "0.1", "--details")
    assert quoted[0].sentence() in " ".join(out.split())
