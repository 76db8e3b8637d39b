"""asv's way to a commit of an upstream repository: hand its name to the benchmarks.

Loaded by asv as a plugin. Nothing is installed and nothing is checked out here: the benchmarks run
the commit as `shardbench history` does, and share what that has stored.
"""

import os
import sys
from pathlib import Path
from typing import Any

from asv import util
from asv.environment import Environment, EnvironmentUnavailable

from benchmarks.asv_worktree import describe_machine

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_ROOT = Path(__file__).resolve().parents[1]


def setup() -> None:
    """Prepare whatever asv will start; asv calls this when it has loaded the plugin."""
    describe_machine()


class Commits(Environment):  # type: ignore[misc]  # asv has no types
    """The present interpreter, told which commit is asked for."""

    tool_name = "commits"
    dir_name = tool_name

    def __init__(self, conf: Any, python: str, *arguments: Any) -> None:
        """Raise EnvironmentUnavailable for any Python but the present one."""
        if python != _PYTHON:
            raise EnvironmentUnavailable(
                f"Environment 'commits' runs the present Python, {_PYTHON}, not {python}."
            )
        super().__init__(conf, python, *arguments)
        self._library, self._repository = conf.project, conf.repo
        self._results = Path("history", conf.project, "history.jsonl").absolute()

    def check_presence(self) -> bool:
        """Say that there is nothing to install."""
        return True

    def create(self) -> None:
        """Make the folder in which asv notes the commit."""
        Path(self._path).mkdir(parents=True, exist_ok=True)

    def install_project(self, conf: Any, repo: Any, commit_hash: str) -> None:  # noqa: ARG002 - asv's
        """Note the commit, and where asv has the repository."""
        self._repository = repo._path
        self._set_installed_commit_hash(commit_hash)

    def run(self, args: list[str], **options: Any) -> Any:
        """Run the present interpreter, with the commit among its environment."""
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        environment = {
            **options.pop("env", os.environ),
            **self._global_env_vars,
            "ASV_PYTHONPATH": path,
            "PYTHONPATH": path,
            "SHARDBENCH_LIBRARY": self._library,
            "SHARDBENCH_REPOSITORY": str(self._repository),
            "SHARDBENCH_RESULTS": str(self._results),
            "SHARDBENCH_COMMIT": str(self._get_installed_commit_hash() or ""),
        }
        return util.check_output([sys.executable, *args], env=environment, **options)
