"""asv's way to a commit of an upstream repository: hand its name to the benchmarks.

Loaded by asv as a plugin. Nothing is installed and nothing is checked out here: the benchmarks run
the commit as `shardbench history` does, and share what that has stored.
"""

import os
from pathlib import Path
from typing import Any

from benchmarks.asv_present import PresentPython, describe_machine

_ROOT = Path(__file__).resolve().parents[1]


def setup() -> None:
    """Prepare whatever asv will start; asv calls this when it has loaded the plugin."""
    describe_machine()


class Commits(PresentPython):
    """The present interpreter, told which commit is asked for."""

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
