"""Command lines of `list` and `compare` with their output and exit codes."""

import json
import re

import pytest
import toy

from harness.contract.registry import load_registry
from harness.store.cells import read_cells
from harness.topologies.lookup import presets

# A family that needs no library, for what does not depend on which it is.
QUICK_ID = "dimspec@random[conversions=5]/dgx_a100_80gb:8"
FOR_CAPTURED = {"unlike_recorded"}  # a quality of what was recorded alone
QUICK = ["--seconds", "0.1"]


def test_lists_have_everything_of_a_kind_or_what_is_of_one_family(shardbench):
    """Each kind alone, all of them without a name, and those of a family."""
    family = load_registry().find("dimspec")
    whole = shardbench("list")[1]
    for what, names, other in (
        ("families", ["dimspec"], "reshard"),
        ("variants", [f"dimspec/{name}" for name in family.variants], "reshard/"),
        ("workloads", [workload.name for workload in family.workloads()], "of reshard"),
        ("topologies", list(presets()), ""),
    ):
        code, out, err = shardbench("list", what)
        assert (code, err) == (0, "")
        assert [name for name in [*names, other] if name not in out] == []
        assert all(line in whole for line in out.splitlines())
        if other:
            code, out, _ = shardbench("list", what, "dimspec")
            assert (code, names[0] in out, other in out) == (0, True, False)
    assert "NVIDIA/nccl" in shardbench("list", "topologies", "--sources")[1]


def test_compare_shows_a_table_and_writes_what_was_asked(shardbench, tmp_path):
    """The JSON document and the results file have every variant."""
    names = ["eager-dict", "shared-dict", "optimal"]
    code, out, _ = shardbench(
        "compare", QUICK_ID, *QUICK, "--variants", ",".join(names),
        "--json", "out.json", "--results", "cells.jsonl", "--details",
    )  # fmt: skip
    assert code == 0
    assert "cost_millions" in out
    assert re.search(r"^[0-9a-f]{16}  eager-dict, shared-dict(, |$)", out, re.MULTILINE)
    assert len(list(read_cells(tmp_path / "cells.jsonl"))) == len(names)
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["problem"] == "random[conversions=5]/dgx_a100_80gb:8"
    assert document["reference"] == "eager-dict"
    rows = {row["variant"]: row for row in document["rows"]}
    family = load_registry().find("dimspec")
    assert list(rows) == [name for name in family.variants if name in names]
    for row in rows.values():
        assert row["status"] == "ok"
        assert row["wall_s"]["median"] > 0
        assert row["cpu_s"]["samples"]
        assert row["counters"]["conversions"] == 5
        assert set(row["quality"]) == {quality.name for quality in family.qualities} - FOR_CAPTURED
    assert [row["decision"] for row in rows.values()] == ["reference", "same", "own"]
    assert rows["shared-dict"]["fingerprint"] == rows["eager-dict"]["fingerprint"]
    assert rows["eager-dict"]["ratio"] is None
    assert rows["optimal"]["verdict"] in ("faster", "slower", "same", "inconclusive")


def test_another_variant_than_the_reference_can_be_compared_with(shardbench, use_families):
    """Ratios are to it, and standard error has the steps."""
    use_families(toy.figures_registry)
    code, out, err = shardbench(
        "compare", "--json", "toy@toy/dgx_a100_80gb:2", *QUICK,
        "--variants", "own,reference,aloof", "--against", "same",
    )  # fmt: skip
    document = json.loads(out)  # one document and nothing else
    assert code == 0
    assert (document["reference"], document["against"]) == ("reference", "same")
    rows = {row["variant"]: row for row in document["rows"]}
    assert rows.pop("aloof")["status"] == "not applicable"
    decisions = {name: row["decision"] for name, row in rows.items()}
    assert decisions == {"reference": "same", "same": "reference", "own": "own"}
    assert rows["same"]["ratio"] is None
    mine, theirs = (rows[name]["cpu_s"]["samples"] for name in ("reference", "same"))
    ratio = rows["reference"]["ratio"]["value"]
    assert min(mine) / max(theirs) <= ratio <= max(mine) / min(theirs)
    assert rows["own"]["peak_memory_bytes"] >= rows["own"]["memory_before_bytes"] > 0
    assert err.startswith("preparing the problem\nchecking 1/4, same, at most 120 s\n")
    assert len(err.splitlines()) == 6
    failing = ("--variants", "raises", "--against", "raises")
    assert shardbench("compare", "toy@toy/dgx_a100_80gb:2", *QUICK, *failing)[0] == 1


def test_a_quick_comparison_takes_a_third_of_the_time_and_less_care(shardbench):
    """The settings are stored with the cells."""
    usual, quick = (
        json.loads(
            shardbench(
                "compare", QUICK_ID, "--variants", "path-cache", *QUICK, *options, "--json", "-"
            )[1]
        )["settings"]["sampling"]
        for options in ([], ["--quick"])
    )
    assert quick["seconds"] == pytest.approx(usual["seconds"] / 3)
    assert quick["precision"] > usual["precision"]
    assert quick["counts_work"] < usual["counts_work"]
