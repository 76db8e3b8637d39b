"""A git repository that is only read: its commits, their trees, and their files."""

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
    """A repository at a path, bare or not. Nothing of it is ever changed.

    Raises UsageError where there is none.
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
        """Return the commit of a name, a tag or an id; raises UsageError where there is none."""
        if not name or name.startswith("-"):
            raise UsageError(f"'{name}' names no commit of {self.path}.")
        try:
            return self._log("--max-count=1", f"{name}^{{commit}}", "--")[0]
        except (ShardbenchError, IndexError):
            raise UsageError(f"'{name}' names no commit of {self.path}.") from None

    def parent(self, commit: Point) -> Point | None:
        """Return the first parent of a commit, None for the first of all."""
        found = self._log("--first-parent", "--max-count=2", commit.id, "--")
        return found[1] if len(found) > 1 else None

    def is_ancestor(self, one: Point, two: Point) -> bool:
        """Return whether a commit is another one or comes before it."""
        try:
            return self._git("merge-base", one.id, two.id).decode().strip() == one.id
        except ShardbenchError:  # they have nothing in common
            return False

    def commits(self, after: Point | None, last: Point, paths: Sequence[str]) -> list[Point]:
        """Return the commits that touch paths, or all without paths, oldest first.

        They are those after one commit, or since the beginning where it is None, up to another.
        """
        names = [last.id, *([f"^{after.id}"] if after else [])]
        return self._log("--first-parent", *names, "--", *paths)[::-1]

    def tree(self, commit: Point, paths: Sequence[str], ignored: Sequence[str]) -> str:
        """Return a hash of the contents of paths at a commit, folders called as `ignored` left out.

        Commits with the same hash have the same files there.
        """
        listed = self._git("ls-tree", "-r", commit.id, "--", *paths).decode(errors="replace")
        kept = [
            line
            for line in listed.splitlines()
            if not set(line.partition("\t")[2].split("/")[:-1]) & set(ignored)
        ]
        return hashlib.sha256("\n".join(kept).encode()).hexdigest()[:16]

    def check_out(self, commit: Point, package: str, folder: Path) -> None:
        """Write the files that a commit has in one folder of the repository into `folder`.

        Raises ShardbenchError where the commit has no such folder.
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
    """Return the number of the pull request that a message names, or an empty text."""
    found = re.search(r"\(#(\d+)\)\s*$", title) or re.search(
        r"^Pull Request resolved: .*/pull/(\d+)\s*$", body, re.MULTILINE
    )
    return found[1] if found else ""
