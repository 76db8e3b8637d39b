"""A folder with one file per plan, which many processes read and write."""

import fcntl
import hashlib
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from harness.contract import UsageError, read_file, replace_file

logger = logging.getLogger("shardbench")

_NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f]{32})-([0-9a-f]{16})\.json")
_TRIES, _PAUSE = 100, 0.05  # a lock is held for milliseconds, unless its process was stopped


def digest(*parts: bytes, letters: int) -> str:
    """Return a hash of some bytes, with this number of hexadecimal digits."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()[:letters]


class PlanFile(NamedTuple):
    """A file of the folder: its name has a hash of the table names, the key, and a checksum."""

    path: Path
    subject: str
    key: str
    checksum: str
    used: int  # time of the last use, in nanoseconds
    size: int


@dataclass
class PlanFolder:
    """Reads, writes and removes files of plans; nothing of it raises an error.

    A file is written as a whole, under a lock on the folder, so readers need no lock. Each kind of
    trouble is reported once, as a warning on the logger `shardbench`. Only files with names that
    the folder itself gives are read and removed.
    """

    folder: Path
    most_bytes: int
    _reported: set[str] = field(default_factory=set)

    def report(self, sentence: str) -> None:
        """Log a warning, unless it was logged before."""
        if sentence not in self._reported:
            self._reported.add(sentence)
            logger.warning("%s", sentence)

    def files(self) -> list[PlanFile]:
        """Return the files, the last used first."""
        files = []
        try:
            for path in self.folder.iterdir():
                if name := _NAME.fullmatch(path.name):
                    with suppress(FileNotFoundError):  # another process has removed it
                        status = path.stat()
                        used, size = status.st_mtime_ns, status.st_size
                        files.append(PlanFile(path, name[1], name[2], name[3], used, size))
        except FileNotFoundError:
            return []  # nothing was written yet
        except OSError as error:
            self.report(f"The plans in {self.folder} cannot be read: {error.strerror or error}.")
        return sorted(files, key=lambda file: (-file.used, file.path.name))

    def read(self, file: PlanFile) -> bytes | None:
        """Return the content of a file, or None if it is damaged, renamed or gone."""
        try:
            content = read_file(file.path)
        except UsageError as error:
            if file.path.exists():
                self.report(str(error))
            return None
        if digest(file.key.encode(), content, letters=len(file.checksum)) != file.checksum:
            self.report(f"{file.path} is damaged, so it is not used.")
            return None
        return content

    def touch(self, file: PlanFile) -> None:
        """Note that a file was used, so that others are removed before it."""
        with suppress(OSError):
            os.utime(file.path)

    def write(self, subject: str, key: str, content: bytes) -> None:
        """Store a plan in place of others with its key, and remove the plans used longest ago."""
        checksum = digest(key.encode(), content, letters=16)
        path = self.folder / f"{subject}-{key}-{checksum}.json"
        try:
            if path.exists() and not path.is_file():
                return  # someone's pipe or folder, which `read` has reported
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._locked():
                for partial in self.folder.glob(".*.json.partial"):  # of a killed process
                    partial.unlink()
                replace_file(path, content)
                total = 0
                for file in self.files():
                    total += file.size
                    if file.path != path and (file.key == key or total > self.most_bytes):
                        file.path.unlink(missing_ok=True)
                        total -= file.size
        except OSError as error:
            self.report(f"The plan is not kept in {self.folder}: {error.strerror or error}.")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock, which the kernel releases if this process is killed."""
        with (self.folder / ".lock").open("a") as lock:
            for left in reversed(range(_TRIES)):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not left:
                        raise
                    time.sleep(_PAUSE)
            yield
