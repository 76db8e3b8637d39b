"""Blocks of the docs and pages of a report, drawn from a record of made-up cells."""

import json
from dataclasses import replace

import pytest
from made_up_results import BOXES, cell, statement, write

from harness.model.statement import Claim
from harness.suites.record import Record
from reports.docs import blocks
from reports.report.page import write_report
from reports.statements import read_record

AT = "@crates[boxes=10,seed=1]/toy_rack:4"
DECLARED = {
    "boxing": (
        replace(BOXES, problem=AT[1:], before="slow-copy"),
        statement(
            "claim", "Boxes #12", "slow-copy", "compiled", boxes=10, counter="copies",
            published=Claim(20, 2.5, "min", "big boxes"), source="made-up/boxes#12",
        ),
        statement("claim", "Boxes #13", "slow-copy", "missing", boxes=10),
    )
}  # fmt: skip
CACHED = (blocks.record, blocks._cells, blocks.family_views, blocks.recorded_systems)


def lines(seconds: float, ratio: float | None = None) -> list[dict]:
    """Return a reference of 8 s, and a variant with the same decision."""
    same = {"fingerprint": "c0ffee"}
    return [
        cell(decision="reference", seconds=8.0, counters={"copies": 900}, **same),
        cell("compiled", decision="same", same_as="slow-copy", seconds=seconds, ratio=ratio,
             counters={"copies": 1}, **same),
    ]  # fmt: skip


def run(part: str, **payload) -> str:
    """Return a stored line of a measured part."""
    return json.dumps({"kind": "run", "id": part, "key": "", "payload": {"seconds": 60, **payload}})


@pytest.fixture
def record(tmp_path, monkeypatch):
    """The record of a made-up suite, which the docs' blocks are drawn from."""
    folder = tmp_path / "record"
    folder.mkdir()
    (folder / "suite.toml").write_text(f'highlights = ["boxing/compiled{AT}"]\n')
    (folder / "runs.jsonl").write_text(run("boxes", environment={"started": "2026-01-02"}))
    write(folder / "cells.jsonl", lines(1.0, 0.125))
    monkeypatch.setattr(blocks, "FOLDER", folder)
    monkeypatch.setattr(blocks, "installed_statements", lambda: DECLARED)
    for cached in CACHED:
        cached.cache_clear()
    yield Record.read(folder)
    for cached in CACHED:
        cached.cache_clear()


def test_blocks_are_tables_of_the_recorded_figures(record):
    """Claims, systems, gains and cells are drawn from the record's cells."""
    for part in ("(20 → 2.5 min)", "reproduced", "| big boxes |", "copies 900 → 1", "not measured"):
        assert part in blocks.claims()
    assert "900 copies; 1 suffice" in blocks.overview()
    assert "8.0\N{MULTIPLICATION SIGN} (7.6\N{EN DASH}8.3)" in blocks.gains(*blocks.highlights())
    assert len(blocks.cells(f"boxing{AT}", "copies").splitlines()) == 6


def test_a_block_of_a_cell_that_is_not_recorded_is_one_sentence(record):
    """The name of the missing cell or variant is in it."""
    for draw in (
        lambda: blocks.gains(f"boxing/none{AT}"),
        lambda: blocks.cells(f"boxing{AT}", variants=("none",)),
    ):
        with pytest.raises(blocks.UsageError, match="none"):
            draw()


def test_provenance_names_every_machine_with_what_it_measured(record):
    """The machine of most parts comes first; up to four parts of another one are named."""
    environment = {"cpu": "Toy CPU", "cores": 2, "python": "3.11.7", "machine": "aa"}
    days = ("2026-01-02", "2026-01-05", "2026-01-03")
    runs = [
        run(f"part {at}", environment={**environment, "started": day})
        for at, day in enumerate(days)
    ]
    file = record.folder / "runs.jsonl"
    file.write_text("\n".join(runs))
    alone = blocks.provenance()
    assert alone.startswith("Recorded on 2026-01-02 to 2026-01-05: Toy CPU, 2 cores")
    other = {**environment, "cpu": "Other CPU", "machine": "bb", "started": "2026-01-09"}
    file.write_text("\n".join([*runs, run("boxes", environment=other)]))
    first, second = blocks.provenance().split(". ")[:2]
    assert alone.startswith(first)
    assert second.startswith("On machine bb: `boxes`, on 2026-01-09: Other CPU, 2 cores")
    many = [run(f"part {at}", environment={**environment, "started": days[0]}) for at in range(9)]
    others = [run(f"box {at}", environment=other) for at in range(8)]
    file.write_text("\n".join([*many, *others]))
    _, second = blocks.provenance().split(". ")[:2]
    assert second.startswith("On machine bb: `box 0`, `box 1`, `box 2` and 5 more, on 2026-01-09")


@pytest.mark.usefixtures("undrawn")
def test_what_is_not_measured_is_shown_from_the_record(record, tmp_path):
    """A report without any cell has the recorded systems, marked as recorded."""
    nothing, out = tmp_path / "none.jsonl", tmp_path / "report"
    page, lines = write_report(nothing, out, record=record.folder, declared=DECLARED)
    assert lines == ["Boxes: 8.0\N{MULTIPLICATION SIGN} as fast, the same decision (recorded)"]
    text = page.read_text()
    assert text.count("(recorded)") == 1, "the claim"
    assert "Use <code>compiled</code>" in text
    alone = write_report(nothing, tmp_path / "alone", declared=DECLARED)
    assert "No variant could be compared" in alone.page.read_text()
    assert read_record(tmp_path / "nowhere") is None


def test_results_of_a_gpu_are_shown_where_there_are_some(record):
    """Results of a CPU, which tries the suite out, are left out."""
    none = blocks.gpu_sentence()
    assert (blocks.gpu_tables(), blocks.gpu_gains()) == (none, none)
    script = '[[table]]\nscript = "docs/{}.py"\nfamily = "boxing"\narguments = ["{{device}}"]\n'
    study = (
        '[[study]]\nfamily = "boxing"\nworkloads = ["crates[boxes=10,seed=1]"]\n'
        'topologies = ["toy_rack:4"]\nvariants = ["slow-copy", "compiled"]\n'
    )
    gpu = record.folder / "gpu"
    gpu.mkdir()
    (gpu / "suite.toml").write_text(script.format("one") + script.format("two") + study)
    for name, of in (("toy", "NVIDIA Toy"), ("cpu", "")):
        machine = gpu / name
        (machine / "tables").mkdir(parents=True)
        (machine / "runs.jsonl").write_text(run("table one", gpu=of))
        (machine / "tables" / "one.md").write_text(f"| {name} |\n")
        write(machine / "cells.jsonl", lines(1.0, 0.125))
    assert "NVIDIA Toy" in blocks.gpu_sentence()
    assert "| toy |" in blocks.gpu_tables()
    assert "| cpu |" not in blocks.gpu_tables()
    assert blocks.gpu_tables().endswith("`docs/two.py`.")
    assert blocks.gpu_gains().count("`boxing/compiled@") == 1
