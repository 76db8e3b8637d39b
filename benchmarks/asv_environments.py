"""asv's environments: the present interpreter on a commit of this project, or of a library.

Loaded by asv as a plugin, which also keeps the results of quick runs apart. Nothing is installed,
so that comparing two commits does not mean two installations of torch; both share what `make
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

_ROOT = Path(__file__).resolve().parents[1]
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def setup() -> None:
    """Prepare the processes that asv will start; asv calls this after loading the plugin."""
    # As the harness does: torchrec's plans can depend on the order of a set.
    os.environ["PYTHONHASHSEED"] = "0"
    Run.run = classmethod(_run_with_quick_results_apart)
    # Accept asv's description of this machine where nobody can be asked for a better one.
    known = Path(MachineCollection.get_machine_file_path()).exists()
    if not (known or sys.stdout.isatty() or "machine" in sys.argv):
        machine = Machine.get_defaults()
        MachineCollection.save(machine["machine"], machine)


_run = Run.run.__func__


def _run_with_quick_results_apart(cls: Any, conf: Any, *args: Any, **options: Any) -> Any:
    """Keep the results of `--quick`, one sample each, from overwriting those of a real run."""
    if options.get("quick"):
        conf.results_dir = f"{conf.results_dir}-quick"
    return _run(cls, conf, *args, **options)


class PresentPython(Environment):  # type: ignore[misc]  # asv has no types
    """The present interpreter; a subclass finds the commit."""

    def __init__(self, conf: Any, python: str, *arguments: Any) -> None:
        """Raise EnvironmentUnavailable for any Python but the present one."""
        if python != _PYTHON:
            raise EnvironmentUnavailable(
                f"Environment '{self.tool_name}' runs the present Python, {_PYTHON}, not {python}."
            )
        super().__init__(conf, python, *arguments)

    def check_presence(self) -> bool:
        """Say that there is nothing to install."""
        return True

    def create(self) -> None:
        """Make the folder that belongs to the commit."""
        Path(self._path).mkdir(parents=True, exist_ok=True)

    def run_present(
        self, args: list[str], path: str, variables: dict[str, str], **options: Any
    ) -> Any:
        """Run the present interpreter with a path for modules, and with these variables."""
        # asv's runner reads the path from ASV_PYTHONPATH, and its child processes from PYTHONPATH.
        environment = {
            **options.pop("env", os.environ),
            **self._global_env_vars,
            "ASV_PYTHONPATH": path,
            "PYTHONPATH": path,
            **variables,
        }
        return util.check_output([sys.executable, *args], env=environment, **options)


class Worktree(PresentPython):
    """A checkout of a commit of this project, found by Python before the editable install."""

    tool_name = "worktree"
    dir_name = tool_name

    def __init__(self, conf: Any, python: str, *arguments: Any) -> None:
        """Raise EnvironmentUnavailable for any Python but the present one."""
        super().__init__(conf, python, *arguments)
        self._checkout = Path(self._build_root)
        self._outline = Path(self._path, "outline.json")

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
        # Outside of the checkout, which git empties for each commit: kernels know their own code.
        kernels = str(Path(self._path, "kernels"))
        variables = {OUTLINE_FILE: str(self._outline), "NUMBA_CACHE_DIR": kernels}
        return self.run_present(args, str(self._checkout), variables, **options)


class Commits(PresentPython):
    """A commit of the library that asv's `project` names, by its hash alone.

    Nothing is checked out here: the benchmarks run the commit as `shardbench history` does, and
    share its stored cells.
    """

    tool_name = "commits"
    dir_name = tool_name

    def __init__(self, conf: Any, python: str, *arguments: Any) -> None:
        """Raise EnvironmentUnavailable for any Python but the present one."""
        super().__init__(conf, python, *arguments)
        self._library, self._repository = conf.project, conf.repo
        self._results = Path("history", conf.project, "history.jsonl").absolute()

    def install_project(self, conf: Any, repo: Any, commit_hash: str) -> None:  # noqa: ARG002 - asv's
        """Note the commit, and where asv has the repository."""
        self._repository = repo._path
        self._set_installed_commit_hash(commit_hash)

    def run(self, args: list[str], **options: Any) -> Any:
        """Run the present interpreter, with the commit among its environment."""
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        variables = {
            "SHARDBENCH_LIBRARY": self._library,
            "SHARDBENCH_REPOSITORY": str(self._repository),
            "SHARDBENCH_RESULTS": str(self._results),
            "SHARDBENCH_COMMIT": str(self._get_installed_commit_hash() or ""),
        }
        return self.run_present(args, path, variables, **options)


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
