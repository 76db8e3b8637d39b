"""Claims against a record: factors, verdicts and the texts drawn from them."""

import json
from pathlib import Path

import pandas as pd
import pytest
from reports.record.claims import claim_results, system_results

from harness.record.record import Record
from reports.core.frames import read_results
from reports.docs import blocks, gpu
from reports.report.page import write_report
from reports.report.recorded import Recorded

PROBLEM = "crates[boxes=10]/toy_rack:4"
SUITE = f"""
highlights = ["boxing/quick@{PROBLEM}"]

[[claim]]
name = "Boxes #12"
source = "https://example.org/12"
published = {{ before = 20, after = 2.5, unit = "min", conditions = "big boxes" }}
before = "boxing/slow@{PROBLEM}"
after = "boxing/quick@{PROBLEM}"
counter = "copies"
remark = "Boxes are copied."

[[claim]]
name = "Boxes #13"
source = "https://example.org/13"
before = "boxing/slow@{PROBLEM}"
after = "boxing/missing@{PROBLEM}"

[[system]]
name = "Boxes"
claim = "Boxes #12"
today = "boxing/slow@{PROBLEM}"
ours = "boxing/quick@{PROBLEM}"
counter = "copies"
counted = "boxing/slow@{PROBLEM}"
sufficient = "boxing/quick@{PROBLEM}"
"""


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
        "cpu_s": {"median": sorted(samples)[len(samples) // 2], "samples": samples},
        "ratio": ratio,
        "counters": {"copies": copies},
        "environment": {"packages": {"torch": "1", "torchrec": "2"}, "cores": 2},
    }


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch):
    def write(quick: list[float], ratio: dict | None = None) -> Record:
        lines = [line("slow", [8.0] * len(quick), 900), line("quick", quick, 1, ratio)]
        (tmp_path / "suite.toml").write_text(SUITE)
        (tmp_path / "cells.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in lines))
        monkeypatch.setattr(blocks, "FOLDER", tmp_path)
        for cached in (blocks.record, blocks._cells, blocks.family_views):
            cached.cache_clear()
        return Record.read(tmp_path)

    yield write
    for cached in (blocks.record, blocks._cells, blocks.family_views):
        cached.cache_clear()


@pytest.mark.parametrize(
    ("quick", "verdict"),
    [(1.0, "reproduced"), (1.2, "reproduced"), (2.0, "smaller"), (0.5, "larger")],
)
def test_a_claim_is_reproduced_within_a_quarter_of_its_factor(recorded, quick, verdict):
    found, _ = claim_results(recorded([quick]))
    assert found.verdict == verdict
    assert found.factor.value == pytest.approx(8 / quick)
    assert found.counts == (900, 1)


def test_an_interval_that_reaches_the_published_factor_reproduces_it(recorded):
    wide = {"value": 0.3, "low": 0.1, "high": 0.9, "pairs": 4}
    narrow = {"value": 0.3, "low": 0.28, "high": 0.32, "pairs": 40}
    assert claim_results(recorded([2.4], wide))[0].verdict == "reproduced"
    assert claim_results(recorded([2.4], narrow))[0].verdict == "smaller"


def test_the_interval_of_a_comparison_is_used_else_the_range_of_the_calls(recorded):
    ratio = {"value": 0.125, "low": 0.1, "high": 0.2, "pairs": 9}
    compared, separate, single = (
        claim_results(recorded(samples, ratio))[0].factor
        for samples, ratio in (([1.0], ratio), ([1.0, 2.0], None), ([1.0], None))
    )
    assert (compared.low, compared.high, compared.calls) == (pytest.approx(5), pytest.approx(10), 9)
    assert (separate.low, separate.high) == (4, 8)
    assert single.low != single.low  # NaN


def test_a_claim_without_its_cell_is_not_recorded(recorded):
    assert claim_results(recorded([1.0]))[1].verdict == "not recorded"


def test_a_system_shows_work_that_is_repeated_and_the_sufficient_count(recorded):
    (system,) = system_results(recorded([1.0]))
    assert system.repeated == (900, 1)
    assert system.factor.value == 8


def test_blocks_are_tables_of_the_recorded_figures(recorded):
    recorded([1.0], {"value": 0.125, "low": 0.1, "high": 0.2, "pairs": 9})
    assert "(20 → 2.5 min)" in blocks.claims()
    assert "reproduced" in blocks.claims()
    assert "| big boxes |" in blocks.claims()
    assert "900 copies" in blocks.overview()
    assert "8.0\N{MULTIPLICATION SIGN} (5.0\N{EN DASH}10)" in blocks.gains(*blocks.highlights())
    assert blocks.remarks() == "- **Boxes #12.** Boxes are copied."
    assert len(blocks.cells(f"boxing@{PROBLEM}", "copies").splitlines()) == 4
    variants = {"slow": "theirs", "quick": "ours"}
    by_size = blocks.times_by_size("boxing@crates[boxes={}]/toy_rack:4", (10,), variants)
    assert by_size.splitlines()[2:] == ["| theirs | 8.00 s |", "| ours | 1.00 s |"]


def test_a_block_of_a_cell_that_is_not_recorded_is_one_sentence(recorded):
    recorded([1.0])
    for draw in (
        lambda: blocks.gains(f"boxing/none@{PROBLEM}"),
        lambda: blocks.cells(f"boxing@{PROBLEM}", variants=("none",)),
    ):
        with pytest.raises(blocks.UsageError, match="none"):
            draw()


def test_a_report_shows_the_record_and_where_this_machine_differs(recorded, tmp_path):
    there = {"value": 0.125, "low": 0.1, "high": 0.2, "pairs": 9}
    here = {"value": 0.5, "low": 0.4, "high": 0.6, "pairs": 9}
    record = recorded([1.0], there)
    run = {"part": "boxes", "seconds": 60, "environment": {"started": "2026-01-02T03:04:05Z"}}
    (tmp_path / "runs.jsonl").write_text(f"{json.dumps(run)}\n")
    results = tmp_path / "results.jsonl"
    lines = [line("slow", [8.0], 900), line("quick", [4.0], 1, here)]
    results.write_text("".join(f"{json.dumps(row)}\n" for row in lines))
    found = Recorded.read(record.folder)
    (difference,) = found.disagreements(read_results(results))
    assert "2.0" in difference.sentence
    assert "8.0" in difference.sentence
    assert list(found.reproductions()) == ["Boxes"]
    page = write_report(results, tmp_path / "report", record=record.folder).read_text()
    assert difference.sentence.split("`")[0] in page
    nothing = Recorded.read(tmp_path / "none")
    assert (nothing.reproductions(), nothing.provenance()) == ({}, "")
    assert list(nothing.disagreements(read_results(results))) == []


def test_published_figures_of_a_report_are_those_of_the_record(recorded):
    columns = ["published", "published_before", "published_after", "published_unit"]
    rows = [["Boxes", 4.0, 10.0, 2.5, "min"], ["Crates", 3.0, 3.0, 1.0, "s"]]
    table = pd.DataFrame(rows, columns=["system", *columns])
    found = Recorded(recorded([1.0])).with_claims(table)
    assert found[columns].to_numpy().tolist() == [[8.0, 20.0, 2.5, "min"], [3.0, 3.0, 1.0, "s"]]
    pd.testing.assert_frame_equal(Recorded(None).with_claims(table), table)


def test_results_of_a_gpu_are_shown_where_there_are_some(recorded, tmp_path):
    recorded([1.0])
    none = gpu.sentence()
    assert (gpu.tables(), gpu.gains()) == (none, none)
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
        run = {"part": "table one", "seconds": 1, "gpu": of}
        (machine / "runs.jsonl").write_text(json.dumps(run) + "\n")
        (machine / "tables" / "one.md").write_text(f"| {name} |\n")
        (machine / "cells.jsonl").write_text((tmp_path / "cells.jsonl").read_text())
    assert "NVIDIA Toy" in gpu.sentence()
    assert "| toy |" in gpu.tables()
    assert "| cpu |" not in gpu.tables()
    assert gpu.tables().endswith("`docs/two.py`.")
    assert gpu.gains().count("`quick`") == 1
    assert gpu.gains().endswith("`crates[boxes=20]`.")
