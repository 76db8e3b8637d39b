"""Append-only files of JSON lines `{kind, id, key, payload}`; a killed writer leaves them readable.

What several lines would repeat, such as an environment, has a line of its own, which they name by
its digest; so a file explains itself.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct, to_builtins

from harness.model.declared import fault
from harness.model.errors import ShardbenchError
from harness.model.files import legible, read_file, replace_file, to_json

T = TypeVar("T")


class Line(Struct, frozen=True):
    """A line; `kind` is empty in lines of schema 1, which are payloads alone."""

    kind: str = ""
    id: str = ""
    key: str = ""
    payload: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """A stored value; `key` is the text of a `Key`."""

    id: str
    key: str
    value: T


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged line, by its number, and the reason; `torn` if it is an incomplete last line."""

    path: Path
    line: int
    why: str
    torn: bool

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: it {self.why}."


class Store(Generic[T]):
    """The values of one kind in a file; lines of other kinds are left alone.

    Args:
        path: the file, which need not exist.
        kind: the kind of line, e.g. `time`.
        form: the type of the payload.
        old_kind: whether a line without a kind, from before kinds, is of this kind, too.
    """

    shared: Mapping[str, Sequence[str]] = {}
    """The fields of a payload that leave it for a shared line, by the kind of that line."""

    def __init__(self, path: Path, kind: str, form: type[T], old_kind: bool = False) -> None:
        self.path, self.kind, self._form = path, kind, form
        self._kinds = {kind, ""} if old_kind else {kind}

    @cached_property
    def _read(self) -> tuple[list[Entry[T]], list[Damage], dict[str, Any]]:
        """The entries, the damaged lines, and the payloads of shared lines by digest."""
        entries: list[Entry[T]] = []
        damaged: list[Damage] = []
        shared: dict[str, Any] = {}
        lines = read_file(self.path).split(b"\n") if self.path.exists() else []
        for number, content in enumerate(lines, start=1):
            if not content.strip():
                continue
            try:
                line = _decoded(content)
                if line.kind in self.shared:
                    shared[line.id] = legible(line.payload)
                elif line.kind in self._kinds:
                    entries.append(self._checked(line, shared))
                elif not line.kind:
                    raise ValueError("is no line of results: it has no 'kind'")
            except ValueError as error:
                damaged.append(Damage(self.path, number, str(error), number == len(lines)))
        return entries, damaged, shared

    def _checked(self, line: Line, shared: Mapping[str, Any]) -> Entry[T]:
        """Return the entry of a line with its shared fields; raises ValueError with the reason."""
        payload = legible(line.payload)
        try:
            for digest in payload.pop("shared", ()):
                if digest not in shared:
                    raise ValueError(f"no line above has the id '{digest}'")
                payload |= shared[digest]
            return self._entry(msgspec.structs.replace(line, payload=payload))
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"is no {self.kind}: {fault(error, self._form)}") from None

    def _entry(self, line: Line) -> Entry[T]:
        value = msgspec.convert(line.payload, self._form, str_keys=True)
        return Entry(legible(line.id), line.key, value)

    def _payload(self, value: T) -> dict[str, Any]:
        payload: dict[str, Any] = legible(value)
        return payload

    @property
    def entries(self) -> Sequence[Entry[T]]:
        """The entries in the order of the file. Raise UsageError if the file cannot be read."""
        return self._read[0]

    @property
    def damaged(self) -> Sequence[Damage]:
        """The damaged lines. Raise UsageError if the file cannot be read."""
        return self._read[1]

    def add(self, *added: Entry[T]) -> None:
        """Append entries and flush them to disk, or leave the file unchanged on an error.

        An incomplete last line of a killed writer is removed first. Raise ShardbenchError if the
        file cannot be written.
        """
        entries, _, shared = self._read
        new: dict[str, Any] = {}
        lines = []
        for entry in added:
            payload = self._payload(entry.value)
            digests = []
            for kind, fields in self.shared.items():
                part = {name: payload.pop(name) for name in fields if name in payload}
                if part:
                    digests.append(digest_of(part))
                    if digests[-1] not in shared | new:
                        new[digests[-1]] = part
                        lines.append({"kind": kind, "id": digests[-1], "payload": part})
            payload = {"shared": digests, **payload} if digests else payload
            lines.append({"kind": self.kind, "id": entry.id, "key": entry.key, "payload": payload})
        _append(self.path, "".join(f"{to_json(line)}\n" for line in lines).encode())
        shared |= new
        entries += added

    def set_aside(self, kept: Iterable[Entry[T]] = ()) -> Path | None:
        """Rename the file by adding the time of its last change; return the new path.

        The new file has the entries `kept`. Return None if there is no file. Raise ShardbenchError
        if it cannot be renamed.
        """
        if not self.path.exists():
            return None
        kept = list(kept)
        changed = datetime.fromtimestamp(self.path.stat().st_mtime, UTC)
        name = f"{self.path.stem}-{changed:%Y%m%dT%H%M%S%f}{self.path.suffix}"
        try:
            renamed = self.path.rename(self.path.with_name(name))
        except OSError as error:
            reason = f"{self.path} cannot be set aside: {error.strerror}."
            raise ShardbenchError(reason) from None
        self.__dict__.pop("_read", None)
        if kept:
            self.add(*kept)
        return renamed

    def set_damaged_aside(self) -> list[Damage]:
        """Move the damaged lines, byte for byte, to the end of `FILE.damaged`, and return them.

        An incomplete last line stays, because the next append replaces it. The caller must hold the
        file's lock. Raise ShardbenchError if a file cannot be written; then no line is lost.
        """
        damaged = [damage for damage in self.damaged if not damage.torn]
        if damaged:
            lines = dict(enumerate(read_file(self.path).split(b"\n"), start=1))
            moved = b"".join(lines.pop(damage.line) + b"\n" for damage in damaged)
            _append(self.path.with_name(f"{self.path.name}.damaged"), moved)
            try:
                replace_file(self.path.resolve(), b"\n".join(lines.values()))
            except OSError as error:
                raise _cannot_be_written(self.path, error) from None
            del self._read
        return damaged


def digest_of(value: Any) -> str:
    """Return a short digest of a value that can be written as JSON."""
    text = json.dumps(to_builtins(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _decoded(content: bytes) -> Line:
    """Return the line in a text; raises ValueError with the reason if it is none."""
    try:
        fields = msgspec.json.decode(content)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"is not JSON: {why}") from None
    try:
        line = msgspec.convert(fields, Line)
    except ValueError as error:
        raise ValueError(f"is no line of results: {fault(error, Line)}") from None
    return line if line.kind else Line(payload=fields)


def _cannot_be_written(path: Path, error: OSError) -> ShardbenchError:
    return ShardbenchError(f"Results cannot be written to {path}: {error.strerror or error}.")


def _check_is_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise ShardbenchError(f"Results cannot be written to {path}: it is not a file.")


def _append(path: Path, content: bytes) -> None:
    """Write lines after the last complete line of a file; on an error, leave it unchanged."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_is_file(path)
        # Unbuffered, because closing would retry to write a buffer that failed to flush.
        with path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # another process may be appending; close unlocks
            file.seek(0)
            before = file.readall() or b""
            end = before.rfind(b"\n") + 1
            with suppress(ValueError, RecursionError):  # a complete line may lack its line feed
                msgspec.json.decode(before[end:], type=dict)
                end, content = len(before), b"\n" + content
            try:
                if end < len(before):
                    file.truncate(end)
                rest = memoryview(content)
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)
                raise
    except OSError as error:
        raise _cannot_be_written(path, error) from None


@contextmanager
def hold(results: Path) -> Iterator[None]:
    """Lock a results file while the block runs.

    The kernel's lock (`flock`) is on `FILE.lock` in the same folder and ends with the process, even
    if it is killed. The results file need not exist and is not changed. A folder that is made for
    the lock is removed if nothing was written to it. Raise ShardbenchError if another process holds
    the lock (with its id) or if the lock file cannot be written.
    """
    _check_is_file(results)
    results = results.resolve()
    lock = results.with_name(f"{results.name}.lock")
    is_new_folder = not results.parent.exists()
    with ExitStack() as stack:
        try:
            results.parent.mkdir(parents=True, exist_ok=True)
            is_removed = True
            while is_removed:  # its last holder has just done that, so a lock on it is void
                file = stack.enter_context(lock.open("a+b", buffering=0))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_removed = not os.fstat(file.fileno()).st_nlink
            file.truncate(0)
            file.write(str(os.getpid()).encode())
        except BlockingIOError:
            file.seek(0)
            who = file.read(20).decode("ascii", errors="replace")
            raise ShardbenchError(
                f"{f'Process {who}' if who else 'Another process'} is measuring into {results}; "
                "wait for it to end, or name another file."
            ) from None
        except OSError as error:
            raise _cannot_be_written(results, error) from None
        try:
            yield
        finally:
            with suppress(OSError):
                lock.unlink()
                if is_new_folder:
                    results.parent.rmdir()  # fails if there are results
