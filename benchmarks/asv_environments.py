"""An asv plugin: an environment that runs a commit of this project.

It uses the current interpreter and installs nothing. All commits share the packages of `make
setup`, so comparing two commits needs no second installation of torch. The plugin also keeps the
results of quick runs separate. It uses private names of asv, so asv is pinned to 0.6.6.
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

from benchmarks import OUTLINE_FILE
from harness.execution.git import git_environment

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def setup() -> None:
    """Prepare asv and the processes that it starts; asv calls this after loading the plugin."""
    # The harness sets the same seed, because torchrec's plans can depend on the order of a set.
    os.environ["PYTHONHASHSEED"] = "0"
    for name in os.environ.keys() - git_environment().keys():
        del os.environ[name]  # asv would read another repository, as in a git hook
    Run.run = classmethod(_run_with_quick_results_apart)
    # Accept asv's default description of this machine if asv cannot ask the user for a better one.
    known = Path(MachineCollection.get_machine_file_path()).exists()
    if not (known or sys.stdout.isatty() or "machine" in sys.argv):
        machine = Machine.get_defaults()
        MachineCollection.save(machine["machine"], machine)


_run = Run.run.__func__


def _run_with_quick_results_apart(cls: Any, conf: Any, *args: Any, **options: Any) -> Any:
    """Run `asv run`; write the one-sample results of `--quick` to a separate folder."""
    if options.get("quick"):
        conf.results_dir = f"{conf.results_dir}-quick"
    return _run(cls, conf, *args, **options)


class Worktree(Environment):  # type: ignore[misc]  # asv has no types
    """An environment that imports this project from a checkout, not from the editable install."""

    tool_name = "worktree"
    dir_name = tool_name

    def __init__(self, conf: Any, python: str, *arguments: Any) -> None:
        """Raise EnvironmentUnavailable if `python` is not the current interpreter's version."""
        if python != _PYTHON:
            raise EnvironmentUnavailable(
                f"Environment '{self.tool_name}' runs the present Python, {_PYTHON}, not {python}."
            )
        super().__init__(conf, python, *arguments)
        self._checkout = Path(self._build_root)
        self._outline = Path(self._path, "outline.json")

    def check_presence(self) -> bool:
        """Return True, since there is nothing to install."""
        return True

    def create(self) -> None:
        """Create the folder of the environment."""
        Path(self._path).mkdir(parents=True, exist_ok=True)

    def install_project(self, conf: Any, repo: Any, commit_hash: str) -> None:  # noqa: ARG002 - asv's
        """Check out the commit and write its entry points, unless it is already checked out."""
        if self._get_installed_commit_hash() != commit_hash:
            self._set_installed_commit_hash(None)
            self.checkout_project(repo, commit_hash)
            write_entry_points(self._checkout)
            self._set_installed_commit_hash(commit_hash)

    def run(self, args: list[str], **options: Any) -> Any:
        """Run the current interpreter with the checkout on the module search path."""
        if args[1:2] == ["discover"]:
            self._outline.unlink(missing_ok=True)
        # Outside the checkout, which git cleans for each commit. The kernels' keys hash their code.
        kernels = str(Path(self._path, "kernels"))
        # asv's runner reads the path from ASV_PYTHONPATH, and its child processes from PYTHONPATH.
        environment = {
            **options.pop("env", os.environ),
            **self._global_env_vars,
            "ASV_PYTHONPATH": str(self._checkout),
            "PYTHONPATH": str(self._checkout),
            OUTLINE_FILE: str(self._outline),
            "NUMBA_CACHE_DIR": kernels,
        }
        return util.check_output([sys.executable, *args], env=environment, **options)


def write_entry_points(checkout: Path) -> None:
    """Write package metadata into a checkout, as for an installed package.

    Python then finds the checkout's entry points, and so its families, before the entry points of
    the editable install, which has the same name.
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
