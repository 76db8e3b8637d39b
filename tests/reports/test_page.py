"""The page of a report: complete, self-contained, and written whole or not at all."""

import base64
import re

import pandas as pd
import pytest
from made_up_results import (
    DECLARED,
    blank_figures,
    cell,
    family_lines,
    over_budget,
    past_lines,
    write,
)
from page_parser import Page

import reports.report.page
from harness.model.errors import UsageError
from reports.report.page import write_report


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    lines = family_lines()
    lines.append(
        cell("b<a>d", status="failed", reason="<script>alert(1)</script> | no", decision=None)
    )
    results = write(folder / "results.jsonl", lines)
    page = write_report(results, folder / "out").page
    return page, [line["cell"] for line in lines]


@pytest.fixture(scope="module")
def page(report):
    return Page(report[0].read_text())


def test_every_cell_is_in_the_page_and_numbers_carry_what_they_sort_by(report, page):
    """The table of all cells is complete, and a number's value is beside its text."""
    assert [row[0] for row in page.tables["boxing-cells-table-1"][1:]] == report[1]
    entries = [attrs for tag, attrs in page.tags if tag == "td" and attrs["class"] == "number"]
    assert any(attrs.get("data-sort") == "0.37" for attrs in entries)
    assert not any(attrs.get("data-sort") == "nan" for attrs in entries)


def test_the_page_needs_nothing_but_itself_and_its_links_lead_somewhere(report, page):
    """Figures and CSV files are within the page, ids are unique, and no name is markup."""
    assert page.open == []
    for tag, attrs in page.tags:
        assert attrs.get("src", "data:image/svg+xml;base64,").startswith("data:image/svg+xml;")
        target = attrs.get("href", "#")
        local = target.startswith(("#", "data:text/csv;base64,"))
        assert local or (tag == "a" and target.startswith("https://github.com/"))
    text = re.sub(r'<a href="https://[^"]*">', "", report[0].read_text())
    assert not re.search(r"https?:|@import|url\((?!#)", text)
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    anchors = {a["href"][1:] for t, a in page.tags if t == "a" and a["href"].startswith("#")}
    assert anchors <= set(ids)
    assert "<script>alert(1)</script> | no" in page.text
    assert page.names.count("script") == 1
    assert "https://github.com/made-up/boxes/pull/12" in {a.get("href") for _, a in page.tags}


def test_every_figure_has_its_files_and_its_data(report, page):
    """A figure's SVG and CSV, and the CSV of tables, are files as well as links in the page."""
    out = report[0].parent
    slugs = {path.stem for path in (out / "figures").iterdir()}
    assert slugs == {"gains", "boxing-ladder", "boxing-size-1", "boxing-quality"}
    embedded = {a["download"]: a["href"] for _, a in page.tags if "download" in a}
    for name in (*slugs, "boxing-cells", "boxing-counters"):
        data = (out / "data" / f"{name}.csv").read_bytes()
        assert base64.b64decode(embedded[f"{name}.csv"].partition(",")[2]) == data
    ladder = pd.read_csv(out / "data" / "boxing-ladder.csv").set_index("variant")
    assert ladder.loc["quick-copy", "published_share"] == 0.125
    assert len(pd.read_csv(out / "data" / "cells.csv")) == 31


@pytest.fixture(scope="module")
def past(tmp_path_factory):
    """A report with bounds, goals, memory, and problems compared with a non-reference variant."""
    folder = tmp_path_factory.mktemp("past")
    lines = [*family_lines(), *past_lines()]
    with blank_figures():
        results = write(folder / "results.jsonl", lines)
        path = write_report(results, folder / "out", declared=DECLARED).page
    return Page(path.read_text())


def test_no_sentence_is_longer_than_twenty_words(page, past):
    """Paragraphs, lists and captions are read at a glance; tables have the rest."""
    paragraphs = [*page.paragraphs, *past.paragraphs]
    sentences = [part for text in paragraphs for part in re.split(r"(?<=[.?!])\s", text)]
    assert len(sentences) > 50
    assert [part for part in sentences if len(part.split()) > 20] == []


def rows_of_table(page, name):
    heading, *rows = page.tables[name]
    return [dict(zip(heading, row, strict=True)) for row in rows]


def test_a_chapter_has_tables_of_goals_other_baselines_bounds_and_memory(page, past):
    """A column or a table with nothing to say is left out."""
    goals = {row["goal"]: row["outcome"] for row in rows_of_table(past, "boxing-goals-table-1")}
    assert goals["compiled is 10 times faster"] == "met"
    large = {row["variant"]: row for row in rows_of_table(past, "boxing-against-table-1")}
    assert large["compiled"]["times as fast\n(projected)"] == "≥ 214x"
    cells = {row["cell"]: row for row in rows_of_table(past, "boxing-cells-table-1")}
    row = cells["boxing/certified@crates[boxes=400,seed=1]/toy_rack:4"]
    assert (row["max_widget_ms\n≥ bound"], row["gap"]) == ("640.3 ≥ 640", "0.05 %")
    assert (row["compared with"], row["peak memory [MiB]"]) == ("no-copy", "2,620")
    stopped = cells["boxing/no-copy@crates[boxes=1600,seed=1]/toy_rack:4"]
    assert stopped["peak memory [MiB]"].startswith("≥ ")
    assert "boxing-goals-table-1" not in page.tables
    heading = page.tables["boxing-cells-table-1"][0]
    assert not {"gap", "compared with", "peak memory [MiB]"} & set(heading)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "lines",
    [
        [cell(status="failed", decision=None, cpu_s=None, wall_s=None, phases={}, quality={})],
        [over_budget("slow-copy", 10), cell("gpu", status="not installed", decision=None)],
        [cell() | dict.fromkeys(("size", "size_name", "qualities", "environment", "purpose"))],
        [cell(family="a b/c"), cell("b", family="another")],
    ],
)
def test_whatever_is_missing_the_report_is_written(tmp_path, lines):
    """Every cell is in it, and nothing is shown as nan."""
    path = write_report(write(tmp_path / "r.jsonl", lines), tmp_path / "out").page
    page = Page(path.read_text())
    assert page.open == []
    assert all(line["cell"] in page.text for line in lines)
    assert "nan" not in page.text.lower().split()


@pytest.mark.usefixtures("undrawn")
def test_a_report_replaces_an_earlier_one_and_nothing_else(tmp_path, monkeypatch):
    """Figures of an earlier report go; if the new one cannot be made, they stay."""
    out = tmp_path / "deep" / "out"
    ladder = [cell(decision="reference"), cell("quick-copy", ratio=0.5, same_as="slow-copy")]
    path = write_report(write(tmp_path / "r.jsonl", ladder), out).page
    assert path == out / "index.html"
    results = write(out / "results.jsonl", [cell()])
    with monkeypatch.context() as patch:
        patch.setattr(reports.report.page, "environment_table", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write_report(results, out)
    assert list((out / "figures").glob("*ladder*"))
    assert "quick-copy" in path.read_text()
    write_report(results, out)
    assert results.exists()
    assert not list((out / "figures").glob("*ladder*"))
    assert "quick-copy" not in path.read_text()
    assert {p.name for p in out.iterdir()} == {"index.html", "data", "results.jsonl"}


@pytest.mark.usefixtures("undrawn")
def test_a_folder_with_other_things_is_not_overwritten(tmp_path):
    """The error says what is in the way."""
    results = write(tmp_path / "r.jsonl", [cell()])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("<h1>Mine</h1>")
    for folder, reason in (
        (tmp_path / "mine", r"holds 'index\.html'"),
        (results, r"r\.jsonl' is a file; name a folder"),
        (results / "below", "cannot be written"),
    ):
        with pytest.raises(UsageError, match=reason):
            write_report(results, folder)
