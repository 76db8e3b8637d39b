"""Blocks of the docs and pages of a report, drawn from a record of made-up cells."""

import json
from pathlib import Path

import pytest
from made_up_results import assert_in_order

from harness.model.statement import Claim, Statement
from harness.suites.record import Record
from reports.core.frames import read_results
from reports.docs import blocks
from reports.report.findings import agreement
from reports.report.page import write_report
from reports.statements import read_record

PROBLEM = "crates[boxes=10]/toy_rack:4"
DECLARED = {
    "boxing": (
        Statement(
            "headline", "Boxes", PROBLEM, "slow", "quick",
            claim="Boxes #12", counter="copies", next_step="Use `quick`.", family="boxing",
        ),
        Statement(
            "claim", "Boxes #12", PROBLEM, "slow", "quick",
            published=Claim(20, 2.5, "min", "big boxes"), source="made-up/boxes#12",
            counter="copies", remark="Boxes are copied.", family="boxing",
        ),
        Statement("claim", "Boxes #13", PROBLEM, "slow", "missing", family="boxing"),
    )
}  # fmt: skip


def line(variant: str, samples: list[float], copies: int, ratio: dict | None = None) -> dict:
    """Return a made-up line of a results file."""
    return {
        "schema": 1,
        "cell": f"boxing/{variant}@{PROBLEM}",
        "family": "boxing",
        "variant": variant,
        "workload": "crates[boxes=10]",
        "topology": "toy_rack",
        "gpus": 4,
        "reference": "slow",
        "status": "ok",
        "decision": "reference" if variant == "slow" else "same",
        "fingerprint": "c0ffee",
        "cpu_s": {"median": sorted(samples)[len(samples) // 2], "samples": samples},
        "ratio": ratio,
        "counters": {"copies": copies},
        "environment": {"packages": {"torch": "1", "torchrec": "2"}, "cores": 2},
    }


def run(part: str, **payload) -> str:
    """Return a stored line of a measured part."""
    return json.dumps({"kind": "run", "id": part, "key": "", "payload": {"seconds": 60, **payload}})


def clear_caches():
    for cached in (
        *(blocks.record, blocks._cells, blocks.family_views),
        *(blocks.statements, blocks.recorded_systems),
    ):
        cached.cache_clear()


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch):
    def write(quick: list[float], ratio: dict | None = None) -> Record:
        lines = [line("slow", [8.0] * len(quick), 900), line("quick", quick, 1, ratio)]
        (tmp_path / "suite.toml").write_text(f'highlights = ["boxing/quick@{PROBLEM}"]\n')
        (tmp_path / "cells.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in lines))
        started = {"started": "2026-01-02T03:04:05Z"}
        (tmp_path / "runs.jsonl").write_text(run("boxes", environment=started))
        monkeypatch.setattr(blocks, "FOLDER", tmp_path)
        monkeypatch.setattr(blocks, "installed_statements", lambda: DECLARED)
        clear_caches()
        return Record.read(tmp_path)

    yield write
    clear_caches()


def test_blocks_are_tables_of_the_recorded_figures(recorded):
    """Claims, systems, gains, cells and times are drawn from the record's cells."""
    recorded([1.0], {"value": 0.125, "low": 0.1, "high": 0.2, "pairs": 9})
    for part in ("(20 → 2.5 min)", "reproduced", "| big boxes |", "copies 900 → 1", "not measured"):
        assert part in blocks.claims()
    assert "900 copies; 1 suffice" in blocks.overview()
    assert "8.0\N{MULTIPLICATION SIGN} (5.0\N{EN DASH}10)" in blocks.gains(*blocks.highlights())
    assert blocks.remarks() == "- **Boxes #12.** Boxes are copied."
    assert len(blocks.cells(f"boxing@{PROBLEM}", "copies").splitlines()) == 4
    variants = {"slow": "theirs", "quick": "ours"}
    by_size = blocks.times_by_size("boxing@crates[boxes={}]/toy_rack:4", (10,), variants)
    assert by_size.splitlines()[2:] == ["| theirs | 8.00 s |", "| ours | 1.00 s |"]


def test_a_block_of_a_cell_that_is_not_recorded_is_one_sentence(recorded):
    """The name of the missing cell or variant is in it."""
    recorded([1.0])
    for draw in (
        lambda: blocks.gains(f"boxing/none@{PROBLEM}"),
        lambda: blocks.cells(f"boxing@{PROBLEM}", variants=("none",)),
    ):
        with pytest.raises(blocks.UsageError, match="none"):
            draw()


@pytest.mark.usefixtures("undrawn")
def test_a_report_shows_the_record_and_where_this_machine_differs(recorded, tmp_path):
    """Ratios whose intervals are apart are counted, and the largest difference is named."""
    record = recorded([1.0], {"value": 0.125, "low": 0.1, "high": 0.2, "pairs": 9})
    here = {"value": 0.5, "low": 0.4, "high": 0.6, "pairs": 9}
    results = tmp_path / "results.jsonl"
    lines = [line("slow", [8.0], 900), line("quick", [4.0], 1, here)]
    results.write_text("".join(f"{json.dumps(row)}\n" for row in lines))
    cells = read_results(results).records
    said = agreement(cells, record.cells())
    assert_in_order(said, "1 of 1 ratio", "quick@", "0.5", "here", "0.125", "there")
    assert agreement(cells, {}) == ""
    page = write_report(results, tmp_path / "report", record=record.folder, declared=DECLARED)
    assert said.split("`")[0] in page.read_text()


@pytest.mark.usefixtures("undrawn")
def test_what_is_not_measured_is_shown_from_the_record(recorded, tmp_path):
    """A report without any cell has the recorded systems, marked as recorded."""
    record = recorded([1.0])
    page = write_report(
        tmp_path / "none.jsonl", tmp_path / "report", record=record.folder, declared=DECLARED
    )
    text = page.read_text()
    assert "Not measured here, but recorded: Boxes 8.0" in text
    assert "(recorded)" in text
    assert "Use <code>quick</code>" in text
    alone = write_report(tmp_path / "none.jsonl", tmp_path / "alone", declared=DECLARED)
    assert "No variant was measured" in alone.read_text()
    assert read_record(tmp_path / "nowhere") is None


def test_results_of_a_gpu_are_shown_where_there_are_some(recorded, tmp_path):
    """Results of a CPU, which tries the suite out, are left out."""
    recorded([1.0])
    none = blocks.gpu_sentence()
    assert (blocks.gpu_tables(), blocks.gpu_gains()) == (none, none)
    script = '[[table]]\nscript = "docs/{}.py"\nfamily = "boxing"\narguments = ["{{device}}"]\n'
    (tmp_path / "gpu").mkdir()
    study = (
        '[[study]]\nfamily = "boxing"\nworkloads = ["crates[boxes=10]", "crates[boxes=20]"]\n'
        'topologies = ["toy_rack:4"]\nvariants = ["slow", "quick"]\n'
    )
    suite = script.format("one") + script.format("two") + study
    (tmp_path / "gpu" / "suite.toml").write_text(suite)
    for name, of in (("toy", "NVIDIA Toy"), ("cpu", "")):
        machine = tmp_path / "gpu" / name
        (machine / "tables").mkdir(parents=True)
        (machine / "runs.jsonl").write_text(run("table one", gpu=of))
        (machine / "tables" / "one.md").write_text(f"| {name} |\n")
        (machine / "cells.jsonl").write_text((tmp_path / "cells.jsonl").read_text())
    assert "NVIDIA Toy" in blocks.gpu_sentence()
    assert "| toy |" in blocks.gpu_tables()
    assert "| cpu |" not in blocks.gpu_tables()
    assert blocks.gpu_tables().endswith("`docs/two.py`.")
    assert blocks.gpu_gains().count("`quick`") == 1
