"""The smallest family with every ability, docs/examples/my_planners."""

import importlib
import re
import sys

import pytest
from documented import ROOT
from fake_clock import FakeClock

from harness.contract import Abilities, BenchOptions, ImportRequest, read_captured
from harness.contract.abilities import load
from harness.contract.registry import Registry
from harness.estimates.timing import Pair, Stopwatch, calibrate
from harness.measuring.request import Request
from harness.model.ids import WorkloadSpec
from harness.planning.capture import capture
from harness.planning.plan import explain, plan
from harness.series import driving
from harness.series.points import CALLS, libraries
from harness.store.keys import Key
from harness.store.lines import Store
from harness.topologies.lookup import find_topology
from shardbench.commands.workload import outcome

ANY_NAME = WorkloadSpec.parse("any-name[and=parameter]")
GPUS = find_topology("dgx_h100", 8)


PAGE = (ROOT / "docs" / "your-planner.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """Return the family of the example, with a library of one function."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "my_library.py").write_text("__version__ = '1.0'\nplan = sum\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.syspath_prepend(EXAMPLES)
        yield importlib.import_module("my_planners").FAMILY
    for name in [name for name in sys.modules if name.startswith(("my_planners", "my_library"))]:
        del sys.modules[name]


@pytest.fixture
def able(family):
    """Return a function that imports an ability of the family by name."""
    return lambda name: load(getattr(family.abilities, name))


def test_the_page_shows_the_family_and_names_every_ability(family, able):
    """The page has a row for each ability, and the code of the family as the example has it."""
    names = set(Abilities.__dataclass_fields__)
    assert not [name for name in names if f"| `{name}` |" not in PAGE]
    assert all(able(name) for name in names)
    assert Registry([family]).families == (family,)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (shown,) = (block for block in blocks if "FAMILY = " in block)
    example = (EXAMPLES / "my_planners" / "__init__.py").read_text(encoding="utf-8")
    assert [line for line in shown.splitlines() if line not in example.splitlines()] == [
        "from harness.contract import Family, Prepared, Quality"
    ]


def test_the_smallest_family_accepts_any_workload_name_plans_and_explains(family):
    """A plan has a document and ranks, and explanations answer for a rank and a table."""
    request = Request(family, ANY_NAME, GPUS, ("loop",))
    planned = plan(request)
    assert str(planned.cell) == "sums/loop@any-name[and=parameter]/dgx_h100:8"
    assert (planned.document, planned.quality) == ({"sum": 28}, {"sum": 28})
    assert len(planned.ranks.rows) == 8
    explained = explain(request, rank=3).explanation
    assert explained.sentences == ("The numbers make 28.",)
    assert explained.sections[0].rows == (("3", 3),)
    assert explain(request, table="3").explanation.sentences == ("3 is a part of 28.",)


def test_a_workload_is_imported(able, tmp_path):
    """The content is one number on a line, and its inventory can be shown."""
    (tmp_path / "numbers.json").write_text("[3, 1, 2]")
    asked = ImportRequest(str(tmp_path / "numbers.json"), str(tmp_path / "numbers.txt"))
    imported = able("importing")(asked)
    assert imported.content == b"3\n1\n2"
    assert outcome(imported)


def test_a_running_job_is_captured_and_left_as_it_was(family, tmp_path, monkeypatch):
    """The file has the numbers, and the library its own function again."""
    monkeypatch.setattr("harness.planning.capture.load_registry", lambda: Registry([family]))
    library = importlib.import_module("my_library")
    plan_of_library, path = library.plan, tmp_path / "problem.json"
    with capture("sums", path):
        assert library.plan([1, 2]) == 3
    assert read_captured(path, "sums") == {"numbers": [1, 2]}
    assert library.plan is plan_of_library


def test_the_driver_answers_as_the_series_needs(family):
    """Times and counts have the declared phases and counters."""
    series = libraries(Registry([family]), "releases")["my-library"][1]
    assert libraries(Registry([family]), "commits")["my-library"][1] is series
    driver = importlib.import_module("my_planners.driver").__file__
    request = driving.Request(driver, str(ANY_NAME), GPUS, tuple(series.parts))
    timed, counted = driving.times(request), driving.counts(request)
    assert (timed.fingerprint, counted.fingerprint) == ("28", "28")
    assert timed.phases.keys() == set(series.releases.phases)
    named = {name for name in counted.counters if not name.startswith(CALLS)}
    assert named == {*series.counters, *series.calls}


class TickingClock(FakeClock):
    """A clock on which every call takes a millisecond."""

    def cpu(self) -> float:
        self.advance(0.001)
        return super().cpu()


def test_decisions_are_measured_and_a_machine_is_fitted(able, tmp_path):
    """The fitted time of a number is that of the ticking clock."""
    bench = able("measuring")(BenchOptions("cpu", "uniform", None))
    store = Store(tmp_path / "times.jsonl", "time", Pair)
    stopwatch = Stopwatch(bench, store, Key(), TickingClock())
    candidates = bench.candidates({"gpus": 8}, 3).decisions
    assert len({candidate.fingerprint for candidate in candidates}) == 3
    for candidate in candidates:
        for rank in candidate.ranks:
            stopwatch.time(rank.work, 1)
    (figure,) = calibrate(bench.design(1.0), stopwatch).figures
    assert figure.value == pytest.approx(1 / 30_000)
