"""Command lines of `list`, `compare` and `explain` with their output and exit codes."""

import json
import re
from typing import Any

import pytest
import toy_registries
from rich.console import Console

from harness.contract.registry import load_registry
from harness.model.cell import Cell, Summary
from harness.model.ids import CellId
from harness.model.quality import Quality
from harness.model.statement import Statement
from harness.store.cells import read_cells
from harness.topologies.lookup import presets
from shardbench.commands import compare

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
    use_families(toy_registries.figures_registry)
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


COST = (Quality("cost", "ms"), Quality("bound", "ms", "higher", bounds="cost"))
GOAL = Statement(
    *("goal", "compiled is 200 times faster", "crates/toy_rack:4", "upstream", "compiled"),
    at_least=200,
    family="boxing",
)


def cell(variant: str, **changes: Any) -> Cell:
    fields = {"status": "ok", "cpu_s": Summary(12.5), "quality": {"cost": 118.4, "bound": 110.2}}
    cell_id = CellId.parse(f"boxing/{variant}@crates/toy_rack:4")
    given = {"reference": "upstream", "against": "upstream", "qualities": list(COST)}
    return Cell(id=cell_id, **given | fields | changes)


def test_if_the_baseline_was_stopped_its_projection_is_shown(monkeypatch):
    """A projection is marked, and is no ratio."""
    monkeypatch.setattr(compare, "installed_statements", lambda family: {"boxing": (GOAL,)})
    stopped = cell("upstream", status="over budget", cpu_s=None, quality={}, projection_s=3600.0)
    console = Console(width=80, highlight=False)
    with console.capture() as capture:
        quick = cell("compiled", decision="own", wall_s=Summary(12.5))
        console.print(compare.shown([stopped, quick], details=False))
    lines = [" ".join(line.split()) for line in capture.get().splitlines()]
    assert "compiled 12.5 s ≥ 288x own 118.4 ≥ 110.2 7.4 %" in lines
    assert any("288 times (projected) projected to be met" in line for line in lines)


CELL = "embedding/uniform@synthetic[tables=5,seed=1]/dgx_a100_80gb:4"


def test_options_ask_the_same_and_files_hold_it(shardbench, tmp_path):
    """The explanation is a JSON or a Markdown file."""
    problem = ("-w", "synthetic[tables=5,seed=1]", "-t", "dgx_a100_80gb", "-n", "4")
    for suffix in ("json", "md"):
        path = tmp_path / f"why.{suffix}"
        options = ("--against", "certified", "--rank", "2", "-o", str(path))
        code, out, err = shardbench("explain", "embedding/uniform", *problem, *options)
        assert code == 0, err
        assert "is the slowest" in out
        assert f"why.{suffix}" in err.replace("\n", "")
    held = json.loads((tmp_path / "why.json").read_text())
    assert (held["format"], held["version"]) == ("shardbench-explanation", 1)
    assert (held["cell"], held["against"]) == (CELL, "certified")
    assert held["explanation"]["rank"]["rank"] == 2
    text = (tmp_path / "why.md").read_text()
    assert all(sentence.split(" ")[0] in text for sentence in held["sentences"])
    assert re.search(r"^\| table \| rows x dim \|", text, re.MULTILINE)


def test_a_single_table_is_explained_and_what_does_not_exist_refused(shardbench):
    """`--table` shows the options of that table alone."""
    code, out, _ = shardbench("explain", CELL, "--table", "table_3")
    assert code == 0
    assert "Table table_3 is placed as" in out
    assert "Alternatives for table_3" in out
    assert "What bounds the result" not in out
    code, _, err = shardbench("explain", CELL, "--table", "table_9")
    assert code == 2
    assert "Unknown table 'table_9'" in err
