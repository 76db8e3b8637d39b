"""The flame graphs that a report makes and links."""

import re

import pytest
from made_up_profiles import profile
from made_up_results import family_lines, family_of, past_lines, results_of, statement, write

from harness.measuring.profile.flame_graph import Frame
from harness.model.statement import Pair
from reports.family.data import families
from reports.family.flames import flame_pages, ladder_pairs, main_pair, page_name
from reports.flames import flame_page
from reports.report.page import write_report

PROBLEM = "crates[boxes=80,seed=1]/toy_rack:4"


def pair(variant, before=""):
    return Pair(PROBLEM, before, variant)


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
    (profiles / name).write_text(flame_page([made], PROBLEM))
    (profiles / "boxing-mine.html").write_text("<h1>Mine</h1>")
    (profiles / "boxing-endless.html").symlink_to("/dev/zero")
    report = write_report(results, tmp_path / "out", profiles)
    (link,) = re.findall(r'href="(flames/[^"]*)"', report.read_text())
    assert (report.parent / link).read_text() == (profiles / name).read_text()
    (profiles / name).unlink()
    assert flame_pages(family_of(tmp_path, family_lines()), [profiles]) == {}
    write_report(results, tmp_path / "out", profiles)
    assert not (tmp_path / "out" / "flames").exists()
