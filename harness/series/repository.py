"""Read commits, tree hashes and files from a git repository, without changing it."""

import hashlib
import io
import re
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from harness.model.errors import ShardbenchError, UsageError
from harness.series.points import Point

_FIELD, _END = "%x1f", "%x1e"
_FORMAT = f"{_FIELD.join(('%H', '%cs', '%s', '%b'))}{_END}"


class Repository:
    """Read-only access to a git repository, bare or not.

    Raises UsageError if the path is not a repository.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_dir():
            raise UsageError(f"{path} is no folder, so no repository is there.")
        try:
            self._git("rev-parse", "--git-dir")
        except ShardbenchError:
            raise UsageError(f"{path} is no git repository.") from None

    def commit(self, name: str) -> Point:
        """Return the commit of a branch, tag or hash. Raise UsageError if there is none."""
        if not name or name.startswith("-"):
            raise UsageError(f"'{name}' names no commit of {self.path}.")
        try:
            return self._log("--max-count=1", f"{name}^{{commit}}", "--")[0]
        except (ShardbenchError, IndexError):
            raise UsageError(f"'{name}' names no commit of {self.path}.") from None

    def parent(self, commit: Point) -> Point | None:
        """Return the first parent of a commit, or None for a root commit."""
        found = self._log("--first-parent", "--max-count=2", commit.id, "--")
        return found[1] if len(found) > 1 else None

    def is_ancestor(self, one: Point, two: Point) -> bool:
        """Return whether commit `one` equals commit `two` or is an ancestor of it."""
        try:
            return self._git("merge-base", one.id, two.id).decode().strip() == one.id
        except ShardbenchError:  # the commits have no common ancestor
            return False

    def commits(self, after: Point | None, last: Point, paths: Sequence[str]) -> list[Point]:
        """Return the commits after `after` up to and including `last` that change `paths`.

        The oldest is first. None for `after` starts at the root; empty `paths` match any commit.
        """
        names = [last.id, *([f"^{after.id}"] if after else [])]
        return self._log("--first-parent", *names, "--", *paths)[::-1]

    def tree(self, commit: Point, paths: Sequence[str], ignored: Sequence[str]) -> str:
        """Hash the files in `paths` at a commit, without folders named in `ignored`.

        Commits with equal hashes have equal files.
        """
        listed = self._git("ls-tree", "-r", commit.id, "--", *paths).decode(errors="replace")
        kept = [
            line
            for line in listed.splitlines()
            if not set(line.partition("\t")[2].split("/")[:-1]) & set(ignored)
        ]
        return hashlib.sha256("\n".join(kept).encode()).hexdigest()[:16]

    def check_out(self, commit: Point, package: str, folder: Path) -> None:
        """Write a commit's files in the repository folder `package` into `folder`.

        Raise ShardbenchError if the commit has no such repository folder.
        """
        archive = self._git("archive", "--format=tar", commit.id, "--", package)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")

    def _log(self, *arguments: str) -> list[Point]:
        text = self._git("log", f"--format={_FORMAT}", *arguments).decode(errors="replace")
        return [_commit(record.strip("\n")) for record in text.split("\x1e") if record.strip("\n")]

    def _git(self, *arguments: str) -> bytes:
        command = ["git", "-C", str(self.path), *arguments]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            printed = done.stderr.decode(errors="replace").strip().splitlines()
            why = printed[-1].removeprefix("fatal: ") if printed else "git gives no reason"
            raise ShardbenchError(f"git {arguments[0]} failed in {self.path}: {why}.")
        return done.stdout


def _commit(text: str) -> Point:
    name, date, title, body = text.split("\x1f", 3)
    number = _pull_request(title, body)
    return Point(name, date, title.removesuffix(f"(#{number})").rstrip(), number)


def _pull_request(title: str, body: str) -> str:
    """Return the pull request number in a commit message, or an empty string."""
    found = re.search(r"\(#(\d+)\)\s*$", title) or re.search(
        r"^Pull Request resolved: .*/pull/(\d+)\s*$", body, re.MULTILINE
    )
    return found[1] if found else ""
