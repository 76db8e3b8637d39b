"""Flame graphs: their page, that no name in it can load anything, and their links in a report."""

import json
import re

import pytest
from made_up_results import (
    COMPILED,
    COPY,
    PLAN,
    PROBLEM,
    UPSTREAM,
    family_lines,
    family_of,
    past_lines,
    profile,
    results_of,
    statement,
    write,
)
from page_parser import Page

from harness.measuring.profile.flame_graph import Frame
from harness.model.statement import Pair
from reports.family.data import families
from reports.family.page import flame_pages, ladder_pairs, main_pair, page_name
from reports.flames import explanation, flame_page
from reports.report.page import write_report

BOXES = "crates[boxes=80,seed=1]/toy_rack:4"
ODD = ("</script>", "<!--", "<b>&amp;", "a|b`c`", "line\nbreak", "naïve 計画", "'\"\\")


def test_the_sentences_say_which_frames_explain_most():
    """The frames that explain most come first, and nothing within the noise is told."""
    first, second = explanation([UPSTREAM, COMPILED])
    assert "`copy.deepcopy` itself took 2.1 s per call in upstream and 0 s in compiled: 1" in first
    assert "`planner.Planner.plan` itself took 900 ms per call in upstream and 1.17 s in" in second
    same_whole = explanation([profile({(PLAN,): 1.0}), profile({(COPY,): 1.0}, "compiled")])
    assert "differ by less than the noise" in same_whole[-1]


def test_the_data_hold_the_merged_tree():
    """A page's data are the frames and nodes of both profiles."""
    data = json.loads(Page(flame_page([UPSTREAM, COMPILED], PROBLEM)).scripts[0])
    assert data["variants"] == ["upstream", "compiled"]
    assert [text for _, text in data["frames"]] == [
        *("toy/upstream against compiled", "planner.Planner.plan", "copy.deepcopy")
    ]
    assert data["nodes"] == [
        [0, 0, 0.05, 0.05, 3.05, 1.22, 3.32, 1],
        [1, 0, 0.9, 1.17, 3.0, 1.17, 3.27, 1],
        [2, 1, 2.1, 0.0, 2.1, 0.0, 2.1, 1],
    ]


@pytest.mark.parametrize("name", ODD)
def test_no_name_can_break_out_of_the_page(name):
    """A name that is markup stays a text in the page and in its data."""
    odd = profile({(Frame(name, name),): 3.0}, variant=name, family=name)
    plain = Page(flame_page([UPSTREAM, COMPILED], PROBLEM))
    page = Page(flame_page([odd, COMPILED], f"{name}/dgx_h100:8"))
    assert not set("<>&") & set(page.scripts[0]), "what browsers may take for markup"
    assert {tag for tag, _ in page.tags} == {tag for tag, _ in plain.tags}
    assert json.loads(page.scripts[0])["frames"][1] == [name, f"{name}.{name}"]


def test_the_page_needs_no_network():
    """The page names no address, and its policy forbids to load any."""
    text = flame_page([profile({}), profile({(PLAN,): 1e-9}, "compiled")], PROBLEM)
    assert not re.search(r"https?:|//\w+\.\w|@import|url\(|NaN", text)
    assert "default-src 'none'" in text


def pair(variant, before=""):
    return Pair(BOXES, before, variant)


def test_each_step_is_compared_with_the_one_before(tmp_path):
    """The first rung has no step before it."""
    assert ladder_pairs(family_of(tmp_path, family_lines())) == [
        pair("slow-copy"), pair("half-copy", "slow-copy"), pair("quick-copy", "half-copy"),
        pair("no-copy", "quick-copy"),
    ]  # fmt: skip


def test_the_main_pair_is_of_the_first_row_with_both_times(tmp_path):
    """A stopped call is not profiled."""
    rows = [statement("headline", f"{n}", "no-copy", "compiled", boxes=n) for n in (1600, 400)]
    (family,) = families(results_of(tmp_path, past_lines()), {"boxing": rows})
    problem = "crates[boxes=400,seed=1]/toy_rack:4"
    assert main_pair(family) == [Pair(problem, "no-copy", "compiled")]


@pytest.mark.usefixtures("undrawn")
def test_pages_go_with_the_report_and_are_linked_from_their_chapter(tmp_path):
    """What is no page of flame graphs stays where it is, and earlier pages go."""
    results = write(tmp_path / "r.jsonl", family_lines())
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    name = page_name("boxing", pair("no-copy", "slow-copy"))
    made = profile({(Frame("m", "f"),): 1.0}, "no-copy", family="boxing")
    (profiles / name).write_text(flame_page([made], BOXES))
    (profiles / "boxing-mine.html").write_text("<h1>Mine</h1>")
    (profiles / "boxing-endless.html").symlink_to("/dev/zero")
    report = write_report(results, tmp_path / "out", profiles).page
    (link,) = re.findall(r'href="(flames/[^"]*)"', report.read_text())
    assert (report.parent / link).read_text() == (profiles / name).read_text()
    (profiles / name).unlink()
    assert flame_pages(family_of(tmp_path, family_lines()), [profiles]) == {}
    write_report(results, tmp_path / "out", profiles)
    assert not (tmp_path / "out" / "flames").exists()
