"""A repository whose commits are versions of a toy library, a driver of it, and its declaration."""

import os
import subprocess
from pathlib import Path

from toy_library import LIBRARY, write_driver

from harness.contract import History, Quality

PROBLEM = "toy[size=3]/dgx_a100_80gb:8"

DRIVER = """
import toylib
from toylib.planning import plan

def size(request):
    return int(request["workload"].partition("size=")[2].rstrip("]") or 3)

def commit(request):
    from harness.contract.calls import count_calls
    found, calls = count_calls(lambda: plan(size(request)))
    return {"imported_from": toylib.__file__, "fingerprint": str(found),
            "quality": {"cost": float(len(found))}, "counters": {"copies": toylib.COPIES},
            "calls": {"search": calls}, "cpu_s": [0.5] * request["repeat"]}

HANDLERS = {"commit": commit}
"""

INIT = "COPIES = {copies}\n"
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


class ToyRepository:
    """A git repository to which commits are added, one after another."""

    def __init__(self, folder: Path) -> None:
        """Make it, with no commit."""
        self.folder = folder
        folder.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        """Run git as somebody, without anybody's settings."""
        named = {"NAME": "A Tester", "EMAIL": "tester@example.org", "DATE": "2026-01-02T03:04:05Z"}
        who = {f"GIT_{r}_{k}": v for r in ("AUTHOR", "COMMITTER") for k, v in named.items()}
        nobody = {"HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", "-C", str(self.folder), *arguments],
            env=os.environ | who | nobody,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self, title: str, files: dict[str, str]) -> str:
        """Write files and commit them; return the commit's id."""
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", title)
        return self.git("rev-parse", "HEAD")

    def version(
        self, title: str, scans: int = 1, plan: int = 3, steps: int = 5, broken: bool = False
    ) -> str:
        """Commit a version of the library."""
        planning = "raise ImportError('needs CUDA')" if broken else PLANNING
        return self.commit(
            title,
            {
                "toylib/__init__.py": INIT.format(copies=scans),
                "toylib/planning/__init__.py": planning.format(scans=scans, plan=plan),
                "toylib/helpers.py": HELPERS.format(steps=steps),
            },
        )


def declared(folder: Path) -> History:
    """Return the library as a family declares it, its driver written into a folder."""
    return History(
        library=LIBRARY,
        driver=write_driver(folder, DRIVER),
        package="toylib",
        paths=("toylib/planning",),
        problems=(PROBLEM,),
        parts={"search": "the search"},
        counters={"copies": "copies that were made"},
        qualities=(Quality("cost"),),
        pull_requests="https://example.org/pull/{number}",
    )
