"""Command lines with their output and exit codes, and one sentence for bad input."""

import json
import re

import pytest
import toy

from harness.contract.registry import load_registry
from harness.store.cells import read_cells
from harness.topologies.lookup import presets

PROBLEM = ["-w", "synthetic[tables=2,seed=1]", "-t", "dgx_a100_80gb", "-n", "8"]
# A family that needs no library, for what does not depend on which it is.
QUICK_ID = "dimspec@random[conversions=5]/dgx_a100_80gb:8"
FOR_CAPTURED = {"unlike_recorded"}  # a quality of what was recorded alone
QUICK = ["--seconds", "0.1"]


@pytest.mark.parametrize("what", ["families", "variants", "workloads", "topologies"])
def test_list_shows_everything_of_a_kind(shardbench, what):
    code, out, err = shardbench("list", what)
    family = load_registry().find("embedding")
    expected = {
        "families": ["embedding"],
        "variants": [f"embedding/{name}" for name in family.variants],
        "workloads": [workload.name for workload in family.workloads()],
        "topologies": list(presets()),
    }[what]
    assert code == 0
    assert err == ""
    assert [name for name in expected if name not in out] == []
    assert all(line in shardbench("list")[1] for line in out.splitlines())


def test_one_family_is_listed(shardbench):
    """With a family's name, the lists have only what is of that family."""
    for what, expected, other in (
        ("families", "dimspec", "reshard"),
        ("variants", "dimspec/interned", "reshard/"),
        ("workloads", "resnet50", "Workloads of reshard"),
    ):
        code, out, err = shardbench("list", what, "dimspec")
        assert (code, err) == (0, "")
        assert expected in out
        assert other not in out


def test_topologies_are_listed_with_their_sources_on_request(shardbench):
    _, out, _ = shardbench("list", "topologies", "--sources")
    assert "NVIDIA/nccl" in out


def test_compare_shows_a_table_and_writes_what_was_asked(shardbench, tmp_path):
    names = ["eager-dict", "shared-dict", "optimal"]
    code, out, _ = shardbench(
        "compare", QUICK_ID, *QUICK, "--variants", ",".join(names),
        "--json", "out.json", "--results", "cells.jsonl", "--details",
    )  # fmt: skip
    assert "cost_millions" in out
    assert "expansions" in out
    assert re.search(r"^[0-9a-f]{16}  eager-dict, shared-dict(, |$)", out, re.MULTILINE)
    assert len(list(read_cells(tmp_path / "cells.jsonl"))) == len(names)
    document = json.loads((tmp_path / "out.json").read_text())
    assert code == 0
    assert document["problem"] == "random[conversions=5]/dgx_a100_80gb:8"
    assert document["reference"] == "eager-dict"
    rows = {row["variant"]: row for row in document["rows"]}
    family = load_registry().find("dimspec")
    assert list(rows) == [name for name in family.variants if name in names]
    for name, row in rows.items():
        assert row["status"] == "ok"
        assert row["wall_s"]["median"] > 0
        assert row["cpu_s"]["samples"]
        assert row["counters"]["conversions"] == 5
        assert set(row["quality"]) == {quality.name for quality in family.qualities} - FOR_CAPTURED
        assert set(row["phases"]) <= set(family.phases)
        same_as = family.find(name).same_as
        assert row["decision"] == (
            "reference" if name == "eager-dict" else "same" if same_as else "own"
        )
        if same_as:
            assert row["fingerprint"] == rows[same_as]["fingerprint"]
        if name == "eager-dict":
            assert row["ratio"] is None
        else:
            assert row["ratio"]["low"] <= row["ratio"]["value"]
            assert row["verdict"] in ("faster", "slower", "same", "inconclusive")


@pytest.fixture
def toys(use_families):
    """Make the toy family, with a bound, the only family, also in child processes."""
    use_families(toy.figures_registry)


def test_another_variant_than_the_reference_can_be_compared_with_and_steps_are_said(
    shardbench, toys
):
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
    said = err.splitlines()  # where no bar can be drawn
    assert said[:2] == ["preparing the problem", "checking 1/4, same, at most 120 s"]
    assert re.fullmatch(r"timing, at most .+ s", said[5])
    assert len(said) == 6


def test_a_users_tables_and_machine_are_compared(shardbench, tmp_path):
    (tmp_path / "tables.csv").write_text("rows,dim,pooling_factor\n1000,16,1\n500,8,2|3\n")
    (tmp_path / "machine.csv").write_text(
        "name,gpus_per_host,hbm_bytes,intra_host_bw,hbm_bw,hbm_to_ddr_bw\n"
        "mine,4,20000000000,50000000,600000000,12000000\n"
    )
    code, out, _ = shardbench(
        "compare", "embedding", "-w", "tables.csv", "-t", "machine.csv", "-n", "4",
        *QUICK, "--variants", "double-deepcopy", "--json", "-",
    )  # fmt: skip
    document = json.loads(out)
    assert code == 0
    assert document["problem"].startswith("tables.csv#")
    assert document["problem"].endswith("/mine:4")
    assert document["facts"]["features"] == 3


def test_no_plan_at_all_is_said_and_is_no_success(shardbench, tmp_path):
    (tmp_path / "huge.csv").write_text("rows,dim,pooling_factor\n1000000000000,256,1\n")
    code, out, err = shardbench(
        "compare", "embedding", *PROBLEM, "-w", "huge.csv", *QUICK, "--variants", "upstream"
    )
    assert code == 1
    assert "insufficient storage" in out
    assert "Traceback" not in out + err


def test_a_quick_comparison_takes_a_third_of_the_time_and_less_care(shardbench):
    rules = []
    for options in ([], ["--quick"]):
        _, out, _ = shardbench(
            "compare", QUICK_ID, "--variants", "path-cache", *QUICK, *options, "--json", "-"
        )
        rules.append(json.loads(out)["settings"]["sampling"])
    usual, quick = rules
    assert quick["seconds"] == pytest.approx(usual["seconds"] / 3)
    assert quick["precision"] > usual["precision"]
    assert quick["counts_work"] < usual["counts_work"]
