"""A checked call, and the environment that is stored with its cell."""

import math
import sys
import weakref
from contextlib import contextmanager, nullcontext

import pytest
import toy
import toy_registries
from toy_library import ToyRepository

from harness.contract import Family, Prepared, is_observing
from harness.contract.variants import Variant
from harness.measuring.environment import environment
from harness.measuring.jobs import check
from harness.measuring.request import AFTER_CALL, CALL
from harness.model.errors import RegistryError
from harness.model.ids import WorkloadSpec
from harness.topologies.lookup import find_topology

PROBLEM = toy.build(WorkloadSpec("toy"), find_topology("dgx_a100_80gb", 2))


def variant(run, **options) -> Variant:
    def prepare(problem: toy.ToyProblem) -> Prepared[toy.Decision]:
        return Prepared(run, **options)

    return Variant("made-up", prepare, "", "")


def test_a_family_that_plans_adds_figures_for_each_rank(clock):
    """A checked cell has the table of ranks."""
    (family,) = toy_registries.bounded_registry().families
    checked = check(family, family.find("reference"), PROBLEM, clock)
    assert checked.ranks.rows == ((3, 3 / 8), (3, 3 / 8))


def test_garbage_of_setting_up_is_collected_before_a_timed_call(clock):
    """A call that gives the time is not interrupted by a collection for what came before."""

    class InACycle:
        def __init__(self) -> None:
            self.cycle = self

    left = weakref.WeakSet()

    def run() -> toy.Decision:
        assert not left
        return toy.round_robin(PROBLEM)

    renewing = variant(run, renew=lambda: left.add(InACycle()))
    check(toy.TOY, renewing, PROBLEM, clock, observed=False)


@pytest.mark.parametrize("value", [math.nan, -math.inf, None, "7", 1j, 10**400])
def test_a_quality_that_is_no_number_is_refused(clock, value):
    """Only finite numbers can be stored and compared."""
    family = toy.with_work(toy.TOY, quality=lambda problem, decision: {"fullest": value})
    with pytest.raises(RegistryError, match=r"Quality 'fullest' of 'toy/same' is .*, not a numb"):
        check(family, toy.TOY.variants["same"], PROBLEM, clock)


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_is_observed_and_installed_and_all_is_left_afterwards(clock, fails):
    """The observer is outermost; the variant can tell that it is observed; errors leave all."""
    story = []

    @contextmanager
    def around(name: str):
        story.append(f"enter {name}")
        try:
            yield
        finally:
            story.append(f"leave {name}")

    def run() -> toy.Decision:
        story.append("run" if is_observing() else "run alone")
        clock.advance(3)
        if fails:
            raise ValueError("mine")
        return toy.round_robin(PROBLEM)

    family: Family = toy.with_work(toy.TOY, observe=lambda recorder: around("observer"))
    made_up = variant(
        run, installed=lambda: around("installed"), close=lambda: story.append("close")
    )

    def begins(stage: str, recorder: object) -> None:
        story.append(stage)

    with pytest.raises(ValueError, match="mine") if fails else nullcontext():
        assert check(family, made_up, PROBLEM, clock, begins).wall_s == 3
    assert story == [
        "enter observer", "enter installed", CALL, "run",
        *([] if fails else [AFTER_CALL]), "leave installed", "leave observer", "close",
    ]  # fmt: skip
    assert not is_observing()


def test_the_versions_of_a_users_family_are_those_of_its_packages(tmp_path, monkeypatch):
    """A family of another distribution names that distribution and what it requires."""
    installed = tmp_path / "their_planners-1.5.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: their-planners\nVersion: 1.5\n"
        "Requires-Dist: numpy>=1\nRequires-Dist: shardbench\nRequires-Dist: torch; extra == 'x'\n"
    )
    (installed / "entry_points.txt").write_text("[shardbench.families]\nx = their_planners:F\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "their_planners.py").touch()
    packages = environment(0, "their_planners").packages
    assert set(packages) == {"their-planners", "numpy"}
    assert packages["their-planners"] == "1.5"


def test_the_commit_of_a_users_family_is_known(tmp_path, monkeypatch):
    """A family's sources in a checkout have a commit, and a mark if they differ from it."""
    repository = ToyRepository(tmp_path / "checkout")
    monkeypatch.syspath_prepend(repository.folder)
    files = {f"{name}/__init__.py": "" for name in ("kept_planners", "changed_planners")}
    head = repository.commit("Add planners", files)
    (repository.folder / "changed_planners" / "__init__.py").write_text("x = 1")
    for package, mark in (("kept_planners", ""), ("changed_planners", "+")):
        commit = environment(0, package).commit
        assert commit == f"{head[:9]}{mark}"
