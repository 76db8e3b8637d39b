"""Read commits, tree hashes and files from a git repository, without changing it."""

import hashlib
import io
import os
import re
import tarfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from harness.execution.git import GitError, run_git
from harness.model.errors import UsageError
from harness.series.points import Point

_FIELDS = ("%H", "%cs", "%s", "%b")
_FORMAT = "%x00".join(_FIELDS)
# What a user's settings could change: other lines between the commits, the encoding, the commits.
_OF_LOG = ("--no-show-signature", "--encoding=UTF-8", "--no-follow", "-z", f"--format={_FORMAT}")


class Repository:
    """Read-only access to a git repository, bare or not, from any of its folders.

    Raises UsageError if the path is not a repository, or git may not read it, and ShardbenchError
    if there is no git.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            folder = run_git(path, "rev-parse", "--absolute-git-dir")
        except GitError as error:
            raise UsageError(str(error)) from None
        # From there, paths are those of the repository's root.
        self._folder = os.fsdecode(folder).removesuffix("\n")

    @cached_property
    def caveat(self) -> str:
        """The end of a sentence that names a shallow clone; empty if no commits are missing."""
        is_shallow = self._git("rev-parse", "--is-shallow-repository").strip() == b"true"
        how = "git fetch --unshallow gets them"
        return f", a shallow clone without the earlier commits; {how}" if is_shallow else ""

    def commit(self, name: str) -> Point:
        """Return the commit of a branch, tag or hash. Raise UsageError if there is none."""
        try:
            return self._log("--max-count=1", "--end-of-options", f"{name}^{{commit}}", "--")[0]
        except (GitError, IndexError):
            raise UsageError(f"'{name}' names no commit of {self.path}{self.caveat}.") from None

    def parent(self, commit: Point) -> Point | None:
        """Return the first parent of a commit, or None for a root commit."""
        commits = self._log("--first-parent", "--max-count=2", commit.id, "--")
        return commits[1] if len(commits) > 1 else None

    def is_ancestor(self, one: Point, two: Point) -> bool:
        """Return whether commit `one` equals commit `two` or is an ancestor of it."""
        try:
            return self._git("merge-base", one.id, two.id).decode().strip() == one.id
        except GitError:  # the commits have no common ancestor
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
        listed = self._git("ls-tree", "-r", "-z", commit.id, "--", *paths).decode(errors="replace")
        kept = [
            line
            for line in listed.split("\0")[:-1]
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
        # A message may have any bytes but NUL, and need not be UTF-8.
        texts = self._git("log", *_OF_LOG, *arguments).decode(errors="replace").split("\0")
        count = len(_FIELDS)
        records = (texts[start : start + count] for start in range(0, len(texts) - 1, count))
        return [_commit(*record) for record in records]

    def _git(self, command: str, *arguments: str) -> bytes:
        return run_git(self._folder, "--git-dir=.", command, *arguments)


def _commit(name: str, date: str, title: str, body: str) -> Point:
    pull_request = re.search(r"\(#(\d+)\)\s*$", title) or re.search(
        r"^Pull Request resolved: .*/pull/(\d+)\s*$", body, re.MULTILINE
    )
    number = pull_request[1] if pull_request else ""
    return Point(name, date, title.removesuffix(f"(#{number})").rstrip(), number)
