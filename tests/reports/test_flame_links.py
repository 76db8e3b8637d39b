"""The flame graphs that a report makes and links."""

import re

import pytest
from made_up_profiles import profile
from made_up_results import family_lines, past_lines, results_of, statement, write

from harness.measuring.profile.flame_graph import Frame
from harness.model.statement import Pair
from reports.core.frames import read_results
from reports.family.data import families
from reports.family.flames import flame_pages, ladder_pairs, main_pair, page_name
from reports.flames import flame_page
from reports.report.page import write_report

PROBLEM = "crates[boxes=80,seed=1]/toy_rack:4"


def page_of(*names, problem=PROBLEM):
    stacks = {(Frame("m", "f"),): 1.0}
    return flame_page([profile(stacks, name, family="boxing") for name in names], problem)


@pytest.fixture
def results(tmp_path):
    return write(tmp_path / "r.jsonl", family_lines())


@pytest.fixture
def profiles(tmp_path):
    folder = tmp_path / "profiles"
    folder.mkdir()
    return folder


def family_of(results):
    (family,) = families(read_results(results))
    return family


def pair(variant, before="", problem=PROBLEM):
    return Pair(problem, before, variant)


def test_each_step_is_compared_with_the_one_before(results):
    assert ladder_pairs(family_of(results)) == [
        pair("slow-copy"), pair("half-copy", "slow-copy"), pair("quick-copy", "half-copy"),
        pair("no-copy", "quick-copy"),
    ]  # fmt: skip


def test_the_main_pair_is_of_the_first_row_with_both_times(tmp_path):
    rows = [statement("headline", f"{n}", "no-copy", "compiled", boxes=n) for n in (1600, 400)]
    (family,) = families(results_of(tmp_path, past_lines()), {"boxing": rows})
    (found,) = main_pair(family)
    assert found == pair("compiled", "no-copy", "crates[boxes=400,seed=1]/toy_rack:4")


@pytest.mark.usefixtures("undrawn")
def test_pages_go_with_the_report_and_are_linked_from_their_chapter(results, profiles, tmp_path):
    name = page_name("boxing", pair("no-copy", "slow-copy"))
    (profiles / name).write_text(page_of("no-copy", "slow-copy"))
    report = write_report(results, tmp_path / "out", profiles)
    (link,) = re.findall(r'href="(flames/[^"]*)"', report.read_text())
    assert (report.parent / link).read_text() == page_of("no-copy", "slow-copy")
    (profiles / name).unlink()
    report = write_report(results, tmp_path / "out", profiles)
    assert not (tmp_path / "out" / "flames").exists(), "an earlier report's pages are gone"
    assert "boxing-flames" not in report.read_text()


def test_what_is_no_page_of_that_problem_is_not_linked(results, profiles):
    family = family_of(results)
    name = page_name("boxing", pair("slow-copy"))
    other = PROBLEM.replace(",", " ")  # which the same file name is made of
    for content in ("", "<h1>Mine</h1>", page_of("slow-copy", problem=other)):
        (profiles / name).write_text(content)
        assert flame_pages(family, profiles) == []
    (profiles / name).unlink()
    (profiles / name).symlink_to("/dev/zero")
    assert flame_pages(family, profiles) == []
