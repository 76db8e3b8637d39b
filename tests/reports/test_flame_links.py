"""The flame graph of each step of a ladder, in the report."""

import re
import shlex

import pytest
from made_up_profiles import profile
from made_up_results import cell, family_lines, write

from harness.measuring.profile.flame_graph import Frame
from reports.core.frames import read_results
from reports.family.data import families
from reports.family.flame_links import ladder_steps, page_name, variant_pairs
from reports.profile.page import flame_page
from reports.report.page import write_report

PROBLEM = "crates[boxes=80,seed=1]/toy_rack:4"
LADDER = ["slow-copy", "half-copy", "quick-copy", "no-copy"]


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


def test_each_step_is_set_against_the_one_before(results):
    assert variant_pairs(family_of(results)) == [
        ("slow-copy", ""), ("half-copy", "slow-copy"), ("quick-copy", "half-copy"),
        ("no-copy", "quick-copy"),
    ]  # fmt: skip


def test_what_was_not_timed_is_no_step(tmp_path):
    lines = family_lines((10,))
    lines[1] |= {"status": "failed", "cpu_s": None, "wall_s": None, "ratio": None}
    found = variant_pairs(family_of(write(tmp_path / "r.jsonl", lines)))
    assert found[1] == ("quick-copy", "slow-copy")
    alone = write(tmp_path / "r.jsonl", [cell(decision="reference")])
    assert variant_pairs(family_of(alone)) == []


@pytest.mark.usefixtures("undrawn")
def test_where_there_is_no_page_the_command_is_told(results, profiles, tmp_path):
    report = write_report(results, tmp_path / "out", profiles)
    commands = [step.command for step in ladder_steps(family_of(results), profiles)]
    assert shlex.split(commands[1]) == [
        "shardbench", "profile", f"boxing/half-copy@{PROBLEM}", "--against", "slow-copy"
    ]  # fmt: skip
    assert commands[1].replace("'", "&#39;") in report.read_text()
    assert not (tmp_path / "out" / "flames").exists()


@pytest.mark.usefixtures("undrawn")
def test_pages_go_with_the_report(results, profiles, tmp_path):
    name = page_name("boxing", PROBLEM, "quick-copy", "half-copy")
    (profiles / name).write_text(page_of("quick-copy", "half-copy"))
    report = write_report(results, tmp_path / "out", profiles)
    (link,) = re.findall(r'href="(flames/[^"]*)"', report.read_text())
    assert (report.parent / link).read_text() == page_of("quick-copy", "half-copy")
    assert f"]({link})" in report.with_name("report.md").read_text()
    (profiles / name).unlink()
    write_report(results, tmp_path / "out", profiles)
    assert not (tmp_path / "out" / "flames").exists(), "an earlier report's pages are gone"


def test_what_is_no_page_of_that_problem_is_not_linked(results, profiles):
    family = family_of(results)
    name = page_name("boxing", PROBLEM, "slow-copy")
    other = PROBLEM.replace(",", " ")  # which the same file name is made of
    for content in ("", "<h1>Mine</h1>", page_of("slow-copy", problem=other)):
        (profiles / name).write_text(content)
        assert ladder_steps(family, profiles)[0].page is None
    (profiles / name).unlink()
    (profiles / name).symlink_to("/dev/zero")
    assert ladder_steps(family, profiles)[0].page is None
