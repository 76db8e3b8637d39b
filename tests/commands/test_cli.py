"""What a user types and what they then see: output, exit codes, and one sentence for bad input."""

import json
import re
from functools import partial
from pathlib import Path

import pytest

from harness.contract.registry import load_registry
from harness.measuring.comparison import Comparison
from harness.suites.sweep import sweep
from harness.topologies.lookup import presets

PROBLEM = ["-w", "synthetic[tables=2,seed=1]", "-t", "dgx_a100_80gb", "-n", "8"]
# A family that needs no library, for what does not depend on which it is.
QUICK_ID = "dimspec@random[conversions=5]/dgx_a100_80gb:8"
FOR_CAPTURED = {"unlike_recorded"}  # a quality of what was recorded alone
QUICK = ["--seconds", "0.1"]


def test_hosts_that_are_not_full_are_noted(shardbench):
    for gpus, is_noted in ((7, True), (6, True), (4, False), (16, False)):
        placed = ["-w", "synthetic[tables=2]", "-t", "dgx_h100", "-n", str(gpus)]
        _, _, err = shardbench("plan", *placed, "--variant", "calibrated")
        assert ("GPUs: " in err) == is_noted


@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", QUICK_ID, "--variants", ""),
        ("compare", QUICK_ID, "--against="),
        ("workload", "show", "dlrm-856", "--family", ""),
    ],
)
def test_an_option_that_is_given_is_not_empty(shardbench, arguments):
    code, out, err = shardbench(*arguments)
    assert (code, out) == (2, "")
    assert one_sentence(err).endswith(" must not be empty.")


def test_a_variant_that_does_not_apply_is_a_wrong_option(shardbench):
    code, out, err = shardbench("plan", *PROBLEM, "--variant", "calibrated")
    assert (code, out) == (2, "")
    assert "has no coefficients" in one_sentence(err)


def one_sentence(text: str) -> str:
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    assert "Traceback" not in text
    return lines[0]


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


def test_list_shows_all_kinds_without_an_argument(shardbench):
    _, out, _ = shardbench("list")
    assert all(title in out for title in ("Families", "Variants", "Workloads", "Topologies"))


def test_topologies_are_listed_with_their_sources_on_request(shardbench):
    _, out, _ = shardbench("list", "topologies", "--sources")
    assert "NVIDIA/nccl" in out


def test_list_suggests_a_close_name(shardbench):
    code, _, err = shardbench("list", "topologie")
    assert code == 2
    assert one_sentence(err) == "Unknown thing to list 'topologie'; did you mean topologies?"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["compare", "embeding", *PROBLEM], "did you mean embedding?"),
        (["compare", "embedding", *PROBLEM, "--variants", "upstreem"], "did you mean upstream?"),
        (["compare", "embedding", *PROBLEM, "--against", "upstreem"], "did you mean upstream?"),
        (["compare", "embedding", *PROBLEM, "-t", "dgx_h10"], "did you mean dgx_h100"),
        (["compare", "embedding", *PROBLEM, "-w", "dlrm-85"], "did you mean dlrm-856?"),
        (["compare", "embedding", *PROBLEM, "-w", "dlrm-856[table=3]"], "did you mean tables?"),
        (["compare", "embedding", *PROBLEM, "-w", "synthetic[tables=x]"], "100,000, not 'x'"),
        (
            ["compare", "embedding", *PROBLEM, "-w", "synthetic[memory=big]"],
            "mixed, roomy, tight",
        ),
        (["compare", "embedding", *PROBLEM, "-w", "synthetic[tables"], "is malformed"),
        (["compare", "embedding", *PROBLEM, "-n", "12"], "a multiple of it, not 12"),
        (["compare", "embedding", *PROBLEM, "-n", "0"], "at least 1 GPU, not 0"),
        (["compare", "embedding", *PROBLEM, "--budget", "0"], "--budget must be a positive"),
        (["compare", "embedding", *PROBLEM, "--seconds", "nan"], "--seconds must be a positive"),
        (["compare", "embedding", *PROBLEM, "--json", "no/such/folder.json"], "is not a folder"),
        (["compare", "embedding", *PROBLEM, "-w", "none.csv"], "none.csv cannot be read"),
        (["compare", "embedding", *PROBLEM, "-t", "none.csv"], "none.csv cannot be read"),
        (["profile", "embedding", "upstreem", *PROBLEM], "did you mean upstream?"),
        (["report", "none.jsonl"], "none.jsonl"),
        (["report", "none.jsonl", "--large"], "the report of none.jsonl takes no --large"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(shardbench, arguments, sentence):
    code, out, err = shardbench(*arguments)
    assert code == 2
    assert out == ""
    assert sentence in one_sentence(err)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("name,rows,dim\na,10,8\n", "column 'pooling_factor' is missing"),
        ("rows,dim,pooling_factor\n-5,8,1\n", "row 1: rows must be a whole number from 1"),
        ("", "lists no table"),
    ],
)
def test_a_bad_workload_file_is_named_with_row_and_field(shardbench, tmp_path, content, sentence):
    Path(tmp_path / "mine.csv").write_text(content)
    code, _, err = shardbench("compare", "embedding", *PROBLEM, "-w", "mine.csv")
    assert code == 2
    assert "mine.csv" in one_sentence(err)
    assert sentence in err


def test_a_bandwidth_in_the_wrong_unit_is_named_with_file_and_field(shardbench, tmp_path):
    Path(tmp_path / "mine.csv").write_text(
        "name,gpus_per_host,hbm_bytes,intra_host_bw,hbm_bw,hbm_to_ddr_bw\n"
        "mine,8,80000000000,450000000000,3350000000,31500000\n"
    )
    code, _, err = shardbench("compare", "embedding", *PROBLEM, "-t", "mine.csv")
    assert code == 2
    assert "mine.csv, row 1 (mine): intra_host_bw must be bytes per millisecond" in err
    assert "write 450000000 if bytes per second were meant." in one_sentence(err)


def test_a_missing_option_is_bad_usage(shardbench):
    code, _, err = shardbench("compare", "embedding", "-w", "dlrm-856")
    assert code == 2
    assert "--topology" in err


def test_compare_shows_a_table_and_writes_what_was_asked(shardbench, tmp_path):
    names = ["eager-dict", "shared-dict", "optimal"]
    code, out, _ = shardbench(
        "compare", QUICK_ID, *QUICK, "--variants", ",".join(names),
        "--json", "out.json", "--results", "cells.jsonl", "--details",
    )  # fmt: skip
    assert "cost_millions" in out
    assert "expansions" in out
    assert re.search(r"^[0-9a-f]{16}  eager-dict, shared-dict(, |$)", out, re.MULTILINE)
    assert len((tmp_path / "cells.jsonl").read_text().splitlines()) == len(names)
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
def toys(monkeypatch):
    """The toy family, with a bound, as the only one, also in the child processes."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "harness")
    import toy

    monkeypatch.setattr("shardbench.options.load_registry", toy.figures_registry)
    with_toys = partial(Comparison, registry=toy.figures_registry)
    monkeypatch.setattr("shardbench.commands.compare.Comparison", with_toys)


def test_another_variant_than_the_reference_can_be_compared_with_and_steps_are_said(
    shardbench, toys
):
    code, out, err = shardbench(
        "compare", "toy@toy/dgx_a100_80gb:2", *QUICK, "--variants", "own,reference,aloof",
        "--against", "same", "--json", "-",
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
    assert said[:2] == ["preparing the problem", "checking 1/4, same"]
    assert re.fullmatch(r"checking 2/4, reference; about .* left", said[2])
    assert re.fullmatch(r"timing; about .* left", said[5])
    assert len(said) == 6


def test_results_that_cannot_be_written_are_said_before_anything_is_measured(shardbench, tmp_path):
    (tmp_path / "folder").mkdir()
    code, out, err = shardbench("compare", "embedding", *PROBLEM, *QUICK, "--results", "folder")
    assert code == 1
    assert out == ""
    assert one_sentence(err) == "Results cannot be written to folder: it is not a file."


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


@pytest.fixture
def toy_suite(monkeypatch):
    """The toy family as the only one, with a large study, also in the child processes."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "harness")
    import toy

    monkeypatch.setattr("shardbench.options.load_registry", toy.bounded_registry)
    monkeypatch.setattr(
        "shardbench.results_file.sweep", partial(sweep, registry=toy.bounded_registry)
    )


REPORT = ["report", "--seconds", "0.1", "--budget", "30"]


def test_a_report_measures_what_is_not_large_and_writes_its_page(shardbench, toy_suite, tmp_path):
    code, out, err = shardbench(*REPORT)
    assert code == 0, err
    assert out.strip().endswith("report/index.html")
    assert "Compared with same" in (tmp_path / "report" / "report.md").read_text()


@pytest.mark.parametrize(
    ("options", "file", "purposes"),
    [
        ([], "report.jsonl", {"against another"}),
        (["--large"], "report-large.jsonl", {"against another", "large"}),
    ],
)
def test_large_problems_are_measured_on_request(
    shardbench, toy_suite, tmp_path, monkeypatch, options, file, purposes
):
    written: list[Path] = []  # its page is looked at above

    def write_report(results: Path, out: Path, *_: Path) -> Path:
        written.append(results)
        return out / "index.html"

    monkeypatch.setattr("reports.report.page.write_report", write_report)
    code, _, err = shardbench(*REPORT, *options)
    assert code == 0, err
    assert [path.name for path in (tmp_path / "results").iterdir()] == [file]
    lines = (tmp_path / "results" / file).read_text().splitlines()
    assert {json.loads(line)["purpose"] for line in lines} == purposes

    _, _, err = shardbench(*REPORT, *options)
    assert f"{len(purposes)} of {len(purposes)} problem" in err
    assert "measured already" in err
    assert (tmp_path / "results" / file).read_text().splitlines() == lines
    assert written == [Path("results", file)] * 2


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
