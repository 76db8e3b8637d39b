"""`shardbench history`: a repository of a toy library, each commit run from its checkout."""

import csv
import json
import re
from pathlib import Path

import pytest
from toy_library import declared, family
from toy_repository import ToyRepository

from harness.contract.registry import Registry
from shardbench.cli import main


@pytest.fixture
def shardbench(capsys, monkeypatch, tmp_path):
    registry = Registry([family(declared(tmp_path))])
    monkeypatch.setattr("shardbench.commands.history.found_registry", lambda: registry)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["history", *arguments])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def repository(tmp_path):
    return ToyRepository(tmp_path / "clone")


def stored(folder: str = "history/toylib") -> list[dict]:
    lines = Path(folder, "history.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def rows(folder: str = "history/toylib") -> list[dict[str, str]]:
    with Path(folder, "history.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_history_names_the_commits_that_change_calls_and_plans(shardbench, repository):
    repository.version("the first")
    repository.version("a comment", steps=5)
    dearer = repository.version("Scan each option more (#41)", scans=9)
    other = repository.version("Plan otherwise", scans=9, plan=4)
    code, out, _ = shardbench("toylib", "-r", "clone")
    assert code == 0
    calls, _, decisions = out.partition("Commits that changed decisions")
    assert re.search(rf"{dearer[:9]} +2026-01-02 +\d\.\d\d +same +#41 ", calls)
    assert other[:9] not in calls
    assert f"{other[:9]}" in decisions
    assert "other plan" in decisions
    assert "planning.look" in out
    assert [row["status"] for row in rows()] == ["ok"] * 3  # one touched nothing that decides


def test_the_page_is_one_file_whose_curve_leads_to_each_commit(shardbench, repository):
    repository.version("the first")
    dearer = repository.version("<b>More</b> (#41)", scans=9)
    shardbench("toylib", "-r", "clone")
    page = Path("history/toylib/index.html").read_text()
    assert "https://example.org/pull/41" in page
    assert "<b>More</b>" not in page
    assert not re.search(r"(src|href)=\"(?!#|data:|https://example)", page)
    targets = set(re.findall(r'href="#(commits-[0-9a-f]{9})"', page))
    assert f"commits-{dearer[:9]}" in targets
    for each in targets:
        assert f'id="{each}"' in page


def test_what_was_run_is_not_run_again(shardbench, repository):
    repository.version("the first")
    repository.version("more", scans=9)
    first = shardbench("toylib", "-r", "clone")
    content = Path("history/toylib/history.jsonl").read_bytes()
    second = shardbench("toylib", "-r", "clone")
    assert Path("history/toylib/history.jsonl").read_bytes() == content
    assert first[:2] == second[:2]
    repository.version("more again", scans=20)
    shardbench("toylib", "-r", "clone")
    assert Path("history/toylib/history.jsonl").read_bytes().startswith(content)
    assert len(stored()) == 3


def test_times_are_taken_where_asked_for(shardbench, repository):
    repository.version("the first")
    shardbench("toylib", "-r", "clone")
    assert rows()[0]["cpu_s"] == ""
    shardbench("toylib", "-r", "clone", "--repeat", "3")
    assert float(rows()[0]["cpu_s"]) > 0
    assert len(stored()[1]["cpu_s"]["samples"]) == 3
    assert len(stored()) == 2


def test_equal_files_are_run_once_and_tests_are_no_files_that_matter(shardbench, repository):
    repository.version("the first")
    repository.version("more", scans=9)
    repository.version("back", scans=1)
    test = repository.commit("a test", {"toylib/planning/tests/test_it.py": "assert True"})
    repository.version("other", scans=1, plan=4)
    shardbench("toylib", "-r", "clone")
    assert [row["same_files_as"] == "" for row in rows()] == [True, True, False, False, True]
    # `back` and the test are sides of a step, and so were run themselves when that was traced.
    shardbench("toylib", "-r", "clone")
    assert all(row["same_files_as"] == "" for row in rows())
    assert test in {each["variant"] for each in stored()}
    assert len(stored()) == 5


def test_what_changed_beside_the_paths_is_seen_at_the_end_of_a_range(shardbench, repository):
    repository.version("the first")
    beside = repository.version("Help more", steps=500)
    repository.commit("a test", {"toylib/planning/tests/test_it.py": "assert True"})
    _, out, _ = shardbench("toylib", "-r", "clone")
    assert beside[:9] in out.partition("* ")[0]


def test_commits_that_do_not_run_are_grouped_and_cast_doubt(shardbench, repository):
    repository.version("the first")
    for number in range(2):
        repository.version(f"broken {number}", broken=True)
        repository.commit("more", {"toylib/planning/note.txt": f"{number}"})
    repository.version("works", scans=9)
    code, out, _ = shardbench("toylib", "-r", "clone")
    out = " ".join(out.split())
    assert code == 0
    assert "2 of 5 commits run, or have the files of one that does (40 %)." in out
    assert re.search(r"3 commits \(\w{9} of 2026-01-02 to \w{9} of 2026-01-02\) did not run", out)
    assert "ImportError: needs CUDA." in out
    assert re.search(r"or one of \w+, \w+ and \w+ before it, which do not run", out)


def test_a_step_that_came_from_elsewhere_is_traced_to_its_commit(shardbench, repository):
    repository.version("the first")
    repository.commit("words", {"README": "a library"})
    helper = repository.version("Help more", steps=500)
    repository.commit("words again", {"README": "a good library"})
    repository.version("A word of the planner", steps=500)
    innocent = repository.commit("a comment", {"toylib/planning/note.txt": "a word"})
    _, out, _ = shardbench("toylib", "-r", "clone")
    table = out.partition("* ")[0]
    assert helper[:9] in table
    assert innocent[:9] not in table
    assert "touches none of the files" in " ".join(table.split())


def test_find_bisects_to_the_commit_and_says_what_it_did(shardbench, repository):
    first = repository.version("version 0")
    names = [
        repository.version(f"version {n}", scans=9 if n > 21 else 1, plan=n) for n in range(40)
    ]
    code, out, err = shardbench("toylib", f"{first}..", "-r", "clone", "--find", "enumerate_calls")
    assert code == 0
    assert out.startswith(f"{names[22][:9]} 2026-01-02 version 22")
    assert "enumerate_calls: " in out
    assert "planning.look" in out
    assert int(err.split()[0]) <= 10
    _, out, err = shardbench("toylib", f"{first}..", "-r", "clone", "--find", "copies")
    assert "copies: 9 after 1, 9.00 times" in out
    assert err.startswith("0 commits run")


def test_a_merge_counts_as_one_commit(shardbench, repository):
    repository.version("the first")
    repository.git("checkout", "-q", "-b", "side")
    repository.version("half way", scans=4)
    repository.version("all the way", scans=9)
    repository.git("checkout", "-q", "main")
    repository.commit("words", {"README": "a library"})
    repository.git("merge", "-q", "--no-ff", "-m", "Merge side (#7)", "side")
    _, out, _ = shardbench("toylib", "-r", "clone")
    assert len(rows()) == 2
    assert "Merge side" in out


def test_nothing_that_runs_is_a_failure(shardbench, repository):
    repository.version("the first", broken=True)
    code, out, _ = shardbench("toylib", "-r", "clone")
    assert code == 1
    assert "0 of 1 commit run" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["toylid"], "Unknown library with commits to measure, 'toylid'"),
        (["toylib", "-r", "nowhere"], "nowhere is no folder"),
        (["toylib", "-r", "empty"], "empty is no git repository"),
        (["toylib", "main", "-r", "clone"], "RANGE must be A..B, A.. or ..B, not 'main'"),
        (["toylib", "gone..", "-r", "clone"], "'gone' names no commit"),
        (["toylib", "..--all", "-r", "clone"], "'--all' names no commit"),
        (["toylib", "main..main~1", "-r", "clone"], "main does not come before main~1"),
        (["toylib", "-r", "clone", "--find", "speed"], "Unknown counter or quality 'speed'"),
        (["toylib", "-r", "clone", "--find", "copies"], "--find needs a range A..B"),
        (["toylib", "main~1..", "-r", "clone", "--find", "copies"], "copies is the same at"),
        (["toylib", "-r", "clone", "--least", "0.5"], "--least must be a factor of at least 1"),
        (["toylib", "-r", "clone", "--repeat", "-1"], "--repeat must be at least 0, not -1"),
        (["toylib", "-r", "clone", "--jobs", "0"], "--jobs must be at least 1, not 0"),
        (["toylib", "-r", "clone", "--budget", "nan"], "--budget must be a positive number"),
        (["toylib", "-r", "clone", "-p", "toy"], "Problem 'toy' is malformed"),
    ],
)
def test_bad_input_gets_one_sentence(shardbench, repository, tmp_path, arguments, sentence):
    repository.version("the first")
    repository.version("the second", plan=4)
    (tmp_path / "empty").mkdir()
    code, out, err = shardbench(*arguments)
    assert (code, out) == (2, "")
    assert sentence in " ".join(err.split())
    assert len(err.strip().splitlines()) == 1
