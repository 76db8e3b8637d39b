"""Results with names that attack their display: the page, Markdown, figures, CSV, a terminal."""

import csv
import io
import re
from functools import cache
from itertools import cycle
from xml.etree import ElementTree

import pandas as pd
import pytest
from hostile import TEXTS
from made_up_results import (
    blank_figures,
    cell,
    family_lines,
    over_budget,
    past_lines,
    write,
)
from page_parser import Page

from harness.model.files import legible
from reports.core.formatting import code, csv as as_csv, markdown
from reports.core.page import TEMPLATES, templates
from reports.core.table import table_of, text as text_column
from reports.core.terminal import as_terminal
from reports.report.page import write_report
from shardbench import display

TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "h1", "h2", "h3", "p"),
    *("section", "strong", "ul", "li", "span", "nav", "a", "div", "figure", "figcaption", "img"),
    *("table", "thead", "tbody", "tr", "th", "td", "button", "code", "input", "output", "script"),
    *("details", "summary"),
}


def named(texts: tuple[str, ...]) -> list[dict]:
    """Return made-up results in which every text contains one of these texts."""
    turns = cycle(texts)
    name_of = cache(lambda old: next(turns))

    def name(old):
        # What separates the parts of an id cannot stand within them.
        return re.sub("[/@:\\[\\]]", "a", name_of(old))

    def renamed(old):
        return old and f"{name(old)}{old}"

    lines = []
    for line in [*family_lines((10, 20)), *past_lines((400,), (400,)), over_budget("late", 10)]:
        text = next(turns)
        family, topology, variant = name("family"), name("topology"), renamed(line["variant"])
        workload = name("") if line["size"] is None else f"{name('')}[boxes={line['size']}]"
        lines.append(
            line
            | dict.fromkeys(("summary", "source", "purpose", "verdict_reason"), text)
            | dict.fromkeys(("size_name", "fingerprint"), text)
            | {
                "cell": f"{family}/{variant}@{workload}/{topology}:4",
                "family": family,
                "variant": variant,
                "workload": workload,
                "topology": topology,
                "reference": renamed(line["reference"]),
                "same_as": renamed(line["same_as"]),
                "against": renamed(line.get("against") or line["reference"]),
                "reason": text if line["status"] != "ok" else None,
                "facts": {text: text, f"{text}2": [text], f"{text}3": 5},
                "quality": {renamed(key): value for key, value in line["quality"].items()},
                "qualities": [
                    {
                        key: value if key == "better" else renamed(value)
                        for key, value in quality.items()
                    }
                    for quality in line["qualities"]
                ],
                "counters": {renamed(key): value for key, value in line["counters"].items()},
                "counter_meanings": {renamed(key): text for key in line["counters"]},
                "counter_enough": {renamed(key): 1 for key in line["counters"]},
                "phases": {renamed(key): value for key, value in line["phases"].items()},
                "claim": line["claim"] and line["claim"] | {"unit": text, "conditions": text},
                "progress": line["progress"] and line["progress"] | {"unit": text},
                "environment": {
                    **dict.fromkeys(("cpu", "python", "started", "shardbench"), text),
                    "packages": {text: text},
                },
            }
        )
    failed = [
        cell(f"gpu{n}", status="failed", reason=text, decision=None, family="another")
        for n, text in enumerate(texts)
    ]
    return [*lines, *failed]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a report of such results; drawing takes seconds, so all texts share it."""
    made = tmp_path_factory.mktemp("names")
    return write_report(write(made / "results.jsonl", named(TEXTS)), made / "out").page.parent


def test_the_page_holds_no_tag_and_no_link_of_theirs(folder):
    """Each text is shown as it is."""
    page = Page((folder / "index.html").read_text(encoding="utf-8"))
    assert set(page.names) <= TAGS
    assert page.names.count("script") == 1
    assert page.names.count("style") == 1
    for name, value in page.attributes:
        assert not name.startswith("on"), name
        if name.endswith("href"):
            assert value.startswith(("#", "data:text/csv;base64,", "https://github.com/"))
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    shown = page.text.replace("`", "")
    texts = [" ".join(legible(text).replace("`", "").split())[:100] for text in TEXTS]
    assert sum(text in shown for text in texts) > len(texts) / 2


def test_files_stay_in_the_folder_and_can_be_read(folder):
    """Figures are XML, and tables hold no formula."""
    parts = {"index.html", "figures", "data"}
    assert {path.name for path in folder.iterdir()} == parts
    assert {path.name for path in folder.parent.iterdir()} == {"out", "results.jsonl"}
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert all(re.fullmatch(r"[\w-]{1,100}\.\w+", path.name) for path in files)
    drawn = list((folder / "figures").glob("*.svg"))
    assert len(drawn) >= 3
    for path in drawn:
        ElementTree.parse(path)
        assert (folder / "data" / f"{path.stem}.csv").exists()
    for path in (folder / "data").glob("*.csv"):
        rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
        assert {len(row) for row in rows} == {len(rows[0])}
        for value in (value for row in rows for value in row):
            assert not value.startswith(("=", "@", "+")), path
            assert not value.startswith("-") or float(value) <= 0
    cells = pd.read_csv(folder / "data" / "cells.csv")
    assert pd.api.types.is_numeric_dtype(cells["ratio"])


def test_families_whose_names_are_alike_have_files_of_their_own(tmp_path):
    """File names of figures differ, whatever the letters of families."""
    names = ("a b", "a-b", "A-B", "x" * 300, "x" * 301, "how")
    ladder = {
        "slow-copy": {"decision": "reference"},
        "quick": {"decision": "same", "ratio": 0.5, "same_as": "slow-copy"},
    }
    lines = [
        cell(variant, family=name, quality={}, phases={}, **row)  # so the ladder alone is drawn
        for name in names
        for variant, row in ladder.items()
    ]
    with blank_figures():
        page = write_report(write(tmp_path / "results.jsonl", lines), tmp_path / "out").page
    ladders = {path.stem.lower() for path in (page.parent / "figures").glob("*-ladder.svg")}
    assert len(ladders) == len(names)
    ids = [value for name, value in Page(page.read_text()).attributes if name == "id"]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("text", TEXTS)
def test_what_a_report_shows_has_a_glyph_and_keeps_its_meaning(text):
    """Printable texts are kept, and all others become printable."""
    shown = legible({"a": [text]})["a"][0]
    assert shown.replace("\n", "").isprintable()
    shown.encode()
    if text.isprintable():
        assert shown == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`a_b` is 5 % <faster>", "`a_b` is 5 % &lt;faster>"),
        ("max_rank_ms", "max_rank_ms"),
        ("_a_ *b* ~c~", r"\_a\_ \*b\* \~c\~"),
        ("[x](y)", r"\[x\](y)"),
        ("a|b `c|d`", r"a\|b `c\|d`"),
        ("a ` b", r"a \` b"),
        ("one\ntwo", "one two"),
        ("&lt;", "&amp;lt;"),
    ],
)
def test_markdown_shows_a_text_as_it_is(text, shown):
    """Marks of Markdown are escaped, and code stays code."""
    assert markdown(text) == shown
    assert code("a`b``c") == "```a`b``c```"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1+1|cmd", "@SUM(1)"])
def test_a_spreadsheet_computes_no_text_and_keeps_numbers(text):
    """Cells that would be formulas get an apostrophe."""
    frame = pd.DataFrame({text: [text], "number": [-1.5]})
    rows = list(csv.reader(io.StringIO(as_csv(frame))))
    assert rows == [[f"'{text}", "number"], [f"'{text}", "-1.5"]]


def test_a_terminal_shows_markup_as_it_is(capsys):
    """Neither links nor emoji of rich are made of texts."""
    row = ("[link=file:///]x[/link]", ":smile: [/]")
    table = table_of([row], text_column("[red]", 0), text_column(":tm:", 1))
    display.show(as_terminal(table, "[bold]title[/bold]"))
    shown = capsys.readouterr().out
    for text in ("[bold]title[/bold]", "[red]", ":tm:", "[link=file:///]x[/link]", ":smile: [/]"):
        assert text in shown


def test_templates_escape_and_nothing_is_marked_safe():
    """No template can put a text into a page as markup."""
    assert templates().autoescape is True
    for path in TEMPLATES.glob("*.j2"):
        assert not re.search(r"\|\s*safe\b|autoescape", path.read_text(encoding="utf-8")), path
