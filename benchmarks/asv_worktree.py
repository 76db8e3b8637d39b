"""asv's way to a commit: check it out, and run the present interpreter on it.

Loaded by asv as a plugin, which also keeps the results of quick runs apart. Nothing is installed,
so that comparing two commits does not mean two installations of torch; both sides share what `make
setup` has installed. Pinned to asv 0.6.6, whose private names it uses.
"""

import os
import sys
import tomllib
from pathlib import Path
from typing import Any

from asv import util
from asv.commands.run import Run
from asv.environment import Environment, EnvironmentUnavailable
from asv.machine import Machine, MachineCollection

from benchmarks.outline import OUTLINE_FILE

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def setup() -> None:
    """Prepare whatever asv will start; asv calls this when it has loaded the plugin."""
    # As the harness does: torchrec's plans can depend on the order of a set.
    os.environ["PYTHONHASHSEED"] = "0"
    describe_machine()
    Run.run = classmethod(_run_with_quick_results_apart)


_run = Run.run.__func__


def _run_with_quick_results_apart(cls: Any, conf: Any, *args: Any, **options: Any) -> Any:
    """Keep the results of `--quick`, one sample each, from overwriting those of a real run."""
    if options.get("quick"):
        conf.results_dir = f"{conf.results_dir}-quick"
    return _run(cls, conf, *args, **options)


def describe_machine() -> None:
    """Accept asv's description of this machine, for where nobody can be asked for a better one."""
    known = Path(MachineCollection.get_machine_file_path()).exists()
    if not (known or sys.stdout.isatty() or "machine" in sys.argv):
        machine = Machine.get_defaults()
        MachineCollection.save(machine["machine"], machine)


class Worktree(Environment):  # type: ignore[misc]  # asv has no types
    """A checkout of the commit, found by Python before the editable install."""

    tool_name = "worktree"
    dir_name = tool_name

    def __init__(self, conf: Any, python: str, *arguments: Any) -> None:
        """Raise EnvironmentUnavailable for any Python but the present one."""
        if python != _PYTHON:
            raise EnvironmentUnavailable(
                f"Environment 'worktree' runs the present Python, {_PYTHON}, not {python}."
            )
        super().__init__(conf, python, *arguments)
        self._checkout = Path(self._build_root)
        self._outline = Path(self._path, "outline.json")

    def check_presence(self) -> bool:
        """Say that there is nothing to install."""
        return True

    def create(self) -> None:
        """Make the folder that the checkout goes into."""
        Path(self._path).mkdir(parents=True, exist_ok=True)

    def install_project(self, conf: Any, repo: Any, commit_hash: str) -> None:  # noqa: ARG002 - asv's
        """Check the commit out, with its own entry points."""
        if self._get_installed_commit_hash() != commit_hash:
            self._set_installed_commit_hash(None)
            self.checkout_project(repo, commit_hash)
            write_entry_points(self._checkout)
            self._set_installed_commit_hash(commit_hash)

    def run(self, args: list[str], **options: Any) -> Any:
        """Run the present interpreter on the checkout."""
        if args[1:2] == ["discover"]:
            self._outline.unlink(missing_ok=True)
        # asv's runner reads the path from ASV_PYTHONPATH, and its child processes from PYTHONPATH.
        environment = {
            **options.pop("env", os.environ),
            **self._global_env_vars,
            "ASV_PYTHONPATH": str(self._checkout),
            "PYTHONPATH": str(self._checkout),
            OUTLINE_FILE: str(self._outline),
        }
        return util.check_output([sys.executable, *args], env=environment, **options)


def write_entry_points(checkout: Path) -> None:
    """Describe a checkout as Python describes an installed package.

    Its families are then found through its own entry points, which hide those of the editable
    install of the same name.
    """
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"], project["version"]
    lines = []
    for group, entries in project.get("entry-points", {}).items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    info = checkout / f"{name}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
