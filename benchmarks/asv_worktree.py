"""asv's way to a commit: check it out, and run the present interpreter on it.

Loaded by asv as a plugin, which also keeps the results of quick runs apart. Nothing is installed,
so that comparing two commits does not mean two installations of torch; both sides share what `make
setup` has installed. Pinned to asv 0.6.6, whose private names it uses.
"""

import os
import tomllib
from pathlib import Path
from typing import Any

from asv.commands.run import Run

from benchmarks.asv_present import PresentPython, describe_machine
from benchmarks.outline import OUTLINE_FILE


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


class Worktree(PresentPython):
    """A checkout of the commit, found by Python before the editable install."""

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
