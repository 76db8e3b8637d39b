"""Suites: the requests that they make, and sweeps that measure each problem once."""

import importlib.metadata
import platform
from dataclasses import replace as replaced
from pathlib import Path

import pytest
import run_sweep
import toy
import toy_registries
from run_sweep import assert_whole, left, swept

from harness.contract import Family, Study
from harness.measuring import environment as machine
from harness.measuring.request import Request
from harness.model.errors import UsageError
from harness.model.ids import WorkloadSpec
from harness.store.cells import CellStore
from harness.suites.declared import read_suite, registered_requests
from harness.suites.sweep import in_lanes, sweep
from harness.topologies.lookup import find_topology

STUDY = """
[[study]]
family = "toy"
workloads = ["toy[size={size}]"]
topologies = ["dgx_a100_80gb:2"]
[study.matrix]
size = [4, 6]
"""


@pytest.fixture
def suite_path(tmp_path: Path) -> Path:
    return tmp_path / "ladder.toml"


def read(suite_path: Path, text: str) -> tuple[str, list[Request]]:
    suite_path.write_text(text, encoding="utf-8")
    return read_suite(suite_path, toy_registries.toy_registry())


def test_a_short_one_is_read(suite_path):
    """Each workload and topology is filled in with the values of the matrix that it names."""
    name, requests = read(
        suite_path,
        """
        name = "ladder"
        [[study]]
        family = "toy"
        variants = ["same", "own"]
        workloads = ["toy[size={size}]", "toy"]
        topologies = ["dgx_a100_80gb:{gpus}", "dgx_h100:8"]
        against = "plain"
        purpose = "to see"
        [study.matrix]
        size = [4, "6"]
        gpus = [2, 4]
        """,
    )
    assert name == "ladder"
    assert [str(each.problem) for each in requests] == [
        *(f"toy[size={size}]/dgx_a100_80gb:{gpus}" for size in (4, 6) for gpus in (2, 4)),
        *(f"toy[size={size}]/dgx_h100:8" for size in (4, 6)),
        *(f"toy/dgx_a100_80gb:{gpus}" for gpus in (2, 4)),
        "toy/dgx_h100:8",
    ]
    for each in requests:
        assert each.names() == {"same", "own", "plain"}
        assert (each.against, each.purpose) == ("plain", "to see")


def test_what_is_left_out_is_the_usual(suite_path):
    """All variants are compared with the reference."""
    name, requests = read(suite_path, STUDY)
    assert name == "ladder", "as the file is called"
    for each in requests:
        assert each.names() == set(toy.TOY.variants)
        assert each.against == "reference"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Object missing required field `study`."),
        ("study", "is not TOML: "),
        ("nam = 3\n" + STUDY, "Unknown key 'nam'; did you mean name?"),
        (
            STUDY + STUDY.replace("family", "famly"),
            "'study[1]': Object contains unknown field `famly`",
        ),
        (STUDY.replace('"toy"', '"ty"'), "Unknown family 'ty'; did you mean toy?"),
        (STUDY.replace("workloads =", "against = 'sane'\nworkloads ="), "did you mean same?"),
        (
            STUDY.replace("workloads =", "variants = ['sane']\nworkloads ="),
            "Unknown variant of family 'toy', 'sane'; did you mean same?",
        ),
        (STUDY.replace("dgx_a100_80gb:2", "dgx_a100_80gb"), "must be name:gpus, e.g. dgx_h100:16"),
        (STUDY.replace("dgx_a100_80gb:2", "dgx_a100_80gb:12"), "joins 8 GPUs at a time"),
        (STUDY.replace("{size}", "{sise}"), "Unknown key of [study.matrix], 'sise'; did you mean"),
        (STUDY.replace("{size}", "4"), "'matrix.size' is used nowhere; write {size} in a"),
        (STUDY.replace("toy[size={size}]", "toy[{size}"), "is malformed"),
        (
            STUDY + STUDY.replace("workloads", 'against = "own"\nworkloads'),
            "is to be compared with 'reference' and with 'own'",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence_with_the_file(suite_path, text, said):
    """Unknown keys and names come with suggestions."""
    with pytest.raises(UsageError) as refused:
        read(suite_path, text)
    assert said in str(refused.value)
    assert str(refused.value).startswith(str(suite_path))
    assert "\n" not in str(refused.value)


def test_a_matrix_has_an_end(suite_path):
    """A suite of astronomically many problems is refused."""
    keys = "".join(f"k{n} = {list(range(20))}\n" for n in range(6))
    text = STUDY.replace("{size}", "-".join(f"{{k{n}}}" for n in range(6)))
    with pytest.raises(UsageError, match="A matrix makes at most 100000 problems"):
        read(suite_path, text.replace("size = [4, 6]\n", keys))


PROBLEM = "toy[size=4]/dgx_a100_80gb:2"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def plan(path: Path, family: Family = toy.TOY) -> list[Request]:
    return left(path, registered_requests([family]))


def measured(path: Path, family: Family = toy.TOY) -> list[bool]:
    return [request.is_measured for request in plan(path, family)]


def test_two_at_a_time_measure_each_cell_once_and_a_problem_that_fails_costs_itself(path):
    """A problem that cannot be built is refused, and the others are measured."""
    requests = run_sweep.requests()
    lost = WorkloadSpec("toy", {"size": "none"})
    lost_request = Request(toy.TOY, lost, find_topology("dgx_a100_80gb", 2))
    finished = swept(path, [*requests, lost_request])
    (refused,) = filter(None, (done.refused for done in finished))
    assert refused.startswith("Parameter 'size' of workload")
    assert_whole(path)
    assert all(request.is_measured for request in left(path, requests))


def test_an_error_of_a_task_is_raised_and_no_further_task_begins():
    """An error is not kept until the end."""
    begun: list[str] = []

    def run(task: str) -> int:
        begun.append(task)
        return int(task)

    with pytest.raises(ValueError, match="invalid literal"):
        list(in_lanes(["1", "x", "2"], run, 1))
    assert begun == ["1", "x"]


def test_one_problem_in_two_studies_is_one_request(path):
    """Its variants are those of both studies."""
    studies = (
        Study(PROBLEM, ("same",), "first"),
        Study(PROBLEM, ("own", "same"), "second"),
    )
    (request,) = plan(path, replaced(toy.TOY, studies=studies))
    assert request.names() == {"reference", "same", "own"}
    assert request.purpose == "first"


def test_what_cells_are_called_may_differ_from_what_is_given(path, tmp_path):
    """Stored cells count under their own names, of any letters."""
    folder = tmp_path / "\x1b\n\udcff"
    folder.mkdir()
    odd = f"toy[folder={folder}]/dgx_a100_80gb:2"
    for registry, problem in (
        (toy_registries.labelled_registry, PROBLEM),
        (toy_registries.toy_registry, odd),
    ):
        family = replaced(registry().find("toy"), studies=(Study(problem, ("reference",), "odd"),))
        options = (CellStore(path), run_sweep.SETTINGS)
        list(sweep(plan(path, family), *options, registry=registry))
        assert measured(path, family) == [True]


@pytest.fixture
def uncached():
    cached = (machine.digest_of, machine.family_modules)
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()


def test_the_code_of_a_family_of_another_package_counts(uncached, tmp_path, monkeypatch):
    """A change of its sources makes stored cells old."""
    package = tmp_path / "somebody_s_planners"
    package.mkdir()
    (package / "__init__.py").write_text("FAMILY = None\n")
    theirs = ("theirs", "somebody_s_planners:FAMILY", "shardbench.families")
    known = importlib.metadata.entry_points(group="shardbench.families")
    entry_points = importlib.metadata.EntryPoints([*known, importlib.metadata.EntryPoint(*theirs)])
    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points.select)
    monkeypatch.syspath_prepend(tmp_path)
    before = machine.source_digest()
    (package / "__init__.py").write_text("FAMILY = 1\n")
    machine.digest_of.cache_clear()
    assert machine.source_digest() != before


def test_a_named_class_has_all_hosts_with_its_processor(monkeypatch):
    """Pods and runners have a new host name each time, and not quite the same memory."""
    monkeypatch.setenv(machine.MACHINE, "runners")
    here = machine.environment(0).machine
    monkeypatch.setattr(platform, "node", lambda: "another")
    assert machine.environment(0).machine == here
    monkeypatch.setattr(machine, "_processor", lambda: "another")
    assert machine.environment(0).machine != here
    monkeypatch.undo()
    assert machine.environment(0).machine != here
