"""A toy library with releases and commits, a driver of it, its declaration, and its family."""

import subprocess
import zipfile
from pathlib import Path
from typing import Any

import toy

from harness.contract import Abilities, Commits, Family, Quality, Releases, Series
from harness.execution.git import git_environment

LIBRARY = "toylib"
PROBLEM = "toy[size=3]/dgx_a100_80gb:8"

DRIVER = """
import toylib
import toylib.planning
from contextlib import contextmanager
from harness.contract.abilities import Driven

def drive(workload, topology, planner):
    plan = lambda: toylib.planning.plan(int(workload.parameters.get("size", 3)))

    def run(recorder):
        recorder.phases.update(enumerate=0.25, other=0.5)
        return plan()

    @contextmanager
    def observe(recorder):
        yield
        recorder.counters["copies"] = toylib.COPIES

    quality = lambda decision: {"cost": float(len(decision))}
    return Driven(toylib, run, str, lambda: {"enumerate": plan}, observe, quality)
"""

INIT = "RELEASE = '{release}'\nCOPIES = {copies}\n"
PLANNING = """
from toylib.helpers import step

def look(option):
    return dir(option)

def plan(size):
    for option in range(size * {scans}):
        look(option)
    for _ in range(step()):
        len(())
    return list(range({plan}))
"""
HELPERS = "def step():\n    return {steps}\n"


def library_files(
    release: str = "",
    scans: int = 1,
    copies: int = 0,
    plan: int = 3,
    steps: int = 5,
    broken: bool = False,
) -> dict[str, str]:
    """Return the library's files by path; its planner calls `look` `scans` times per option."""
    planning = "raise ImportError('needs CUDA')" if broken else PLANNING
    return {
        f"{LIBRARY}/__init__.py": INIT.format(release=release, copies=copies),
        f"{LIBRARY}/planning/__init__.py": planning.format(scans=scans, plan=plan),
        f"{LIBRARY}/helpers.py": HELPERS.format(steps=steps),
    }


def _release_files(
    release: str, scans: int = 1, copies: int = 0, source: str = ""
) -> dict[str, str]:
    """Return the files of an installed release; `source` replaces its `__init__`."""
    info = f"{LIBRARY}-{release}.dist-info"
    files = library_files(release, scans, copies)
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {LIBRARY}\nVersion: {release}\n"
        "Requires-Dist: something-that-does-not-exist\n"
    )
    files[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    if source:
        files[f"{LIBRARY}/__init__.py"] = source
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    return files


def write_wheel(folder: Path, release: str, *kind: int) -> Path:
    """Write a wheel of a release."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{LIBRARY}-{release}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in _release_files(release, *kind).items():
            wheel.writestr(name, text)
    return path


def write_installed(folder: Path, release: str, *kind: int, source: str = "") -> Path:
    """Write a release as pip would install it into the folder of releases."""
    installed = folder / f"{LIBRARY}-{release}"
    write_files(installed, _release_files(release, *kind, source=source))
    return installed


def write_files(folder: Path, files: dict[str, str]) -> None:
    """Write files into a folder; `files` maps relative paths to texts."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


class ToyRepository:
    """A git repository to which commits are added, one after another."""

    def __init__(self, folder: Path) -> None:
        """Create the repository, without commits."""
        self.folder = folder
        folder.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        """Run git as a made-up user, without the real user's settings."""
        named = {"NAME": "A Tester", "EMAIL": "tester@example.org", "DATE": "2026-01-02T03:04:05Z"}
        who = {f"GIT_{r}_{k}": v for r in ("AUTHOR", "COMMITTER") for k, v in named.items()}
        nobody = {"HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", "-C", str(self.folder), *arguments],
            env=git_environment() | who | nobody,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self, title: str, files: dict[str, str]) -> str:
        """Write files and commit them; return the commit's id."""
        write_files(self.folder, files)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", title)
        return self.git("rev-parse", "HEAD")

    def version(self, title: str, scans: int = 1, **changes: Any) -> str:
        """Commit a version of the library."""
        return self.commit(title, library_files(scans=scans, copies=scans, **changes))


def declared(folder: Path, **changes: Any) -> Series:
    """Return the library's declaration, with its driver written into a folder of its own."""
    driver = folder / "driver" / "driver.py"
    driver.parent.mkdir(parents=True, exist_ok=True)
    driver.write_text(DRIVER)
    fields: dict[str, Any] = {
        "problems": (PROBLEM, "toy[size=30]/dgx_a100_80gb:8"),
        "parts": {"enumerate": "listing the options"},
        "counters": {"copies": "copies that were made"},
        "qualities": (Quality("cost"),),
        "releases": Releases(phases=("enumerate", "other")),
        "commits": Commits(
            package="toylib",
            paths=("toylib/planning",),
            pull_requests="https://example.org/pull/{number}",
        ),
    }
    return Series(LIBRARY, driver, **(fields | changes))


def family(series: Series) -> Family[Any, Any]:
    """Return a family with this library and only a reference as variant."""
    found: Family[Any, Any] = Family(
        name="toy-library",
        summary="",
        implementation=toy.TOY.implementation,
        qualities=(Quality("cost"),),
        abilities=Abilities(series=series),
    )
    found.variant("reference", reference=True)(lambda problem: problem)
    return found
