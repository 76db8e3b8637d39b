"""The environment that is stored with a cell."""

import sys
from pathlib import Path

import pytest
from toy_library import ToyRepository

from harness.measuring.environment import environment, used_packages
from harness.model.machine import PACKAGES


def test_the_versions_of_a_users_family_are_those_of_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
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


def test_the_commit_of_a_users_family_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A family's sources in a checkout have a commit, and a mark if they differ from it."""
    repository = ToyRepository(tmp_path / "checkout")
    monkeypatch.syspath_prepend(repository.folder)
    files = {f"{name}/__init__.py": "" for name in ("kept_planners", "changed_planners")}
    head = repository.commit("Add planners", files)
    (repository.folder / "changed_planners" / "__init__.py").write_text("x = 1")
    for package, mark in (("kept_planners", ""), ("changed_planners", "+")):
        commit = environment(0, package).commit
        assert commit == f"{head[:9]}{mark}"


def test_the_versions_of_a_built_in_family_are_those_of_the_libraries():
    """A family of this project names the libraries whose planners it measures."""
    assert used_packages("planners.embedding") == PACKAGES
