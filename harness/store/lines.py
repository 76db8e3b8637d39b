"""Append-only files of JSON lines `{kind, id, key, payload}`; a killed writer leaves them readable.

What several lines would repeat, such as an environment, has a line of its own, which they name by
its digest; so a file explains itself.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct, to_builtins

from harness.model.declared import fault
from harness.model.errors import ShardbenchError, UsageError
from harness.model.files import legible, read_file, replace_file, to_json

T = TypeVar("T")


class Line(Struct, frozen=True):
    """A line; `kind` is empty in lines of schema 1, which are payloads alone."""

    kind: str = ""
    id: str = ""
    key: str = ""
    payload: Raw = Raw(b"{}")


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


class OtherSchema(ValueError):
    """A line of another version of shardbench; it is not damaged."""


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
                line = _decoded(content, Line)
                if line.kind in self.shared:
                    shared[line.id] = _decoded(line.payload, dict)
                elif line.kind in self._kinds:
                    payload = _decoded(line.payload if line.kind else content, dict)
                    if not _is_plain(content):
                        payload = legible(payload)
                    entries.append(self._entry(line, payload, shared))
                elif not line.kind:
                    raise ValueError("is no line of results: it has no 'kind'")
            except OtherSchema as error:
                raise UsageError(f"{self.path}, line {number}: it {error}.") from None
            except ValueError as error:
                torn = number == len(lines)
                damaged.append(Damage(self.path, number, str(error), torn))
        return entries, damaged, shared

    def _entry(self, line: Line, payload: dict[str, Any], shared: Mapping[str, Any]) -> Entry[T]:
        """Return a line's entry; raises ValueError with the reason if it has a wrong field."""
        whole = self._whole(payload, shared)
        try:
            return Entry(
                legible(line.id), line.key, msgspec.convert(whole, self._form, str_keys=True)
            )
        except (ValueError, OverflowError) as error:
            raise ValueError(f"is no {self.kind}: {fault(error, self._form)}") from None

    def _whole(self, payload: dict[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
        """Return a payload with the fields of the shared lines that it names."""
        for digest in payload.pop("shared", ()):
            if not isinstance(digest, str) or digest not in shared:
                raise ValueError(f"is no {self.kind}: no line above has the id '{digest}'")
            payload |= shared[digest]
        return payload

    @property
    def entries(self) -> Sequence[Entry[T]]:
        """The entries in the order of the file. Raise UsageError if the file cannot be read."""
        return self._read[0]

    @property
    def damaged(self) -> Sequence[Damage]:
        """The damaged lines. Raise UsageError if the file cannot be read."""
        return self._read[1]

    def values(self) -> Iterator[T]:
        """Yield the values in order; raise UsageError for a damaged line that is not torn."""
        for damage in self.damaged:
            if not damage.torn:
                raise UsageError(str(damage))
        return (entry.value for entry in self.entries)

    def add(self, *entries: Entry[T]) -> None:
        """Append entries and flush them to disk, or leave the file unchanged on an error.

        An incomplete last line of a killed writer is removed first. Raise ShardbenchError if the
        file cannot be written.
        """
        held, _, shared = self._read
        new: dict[str, Any] = {}
        lines = []
        for entry in entries:
            payload = self._payload(entry.value)
            digests = []
            for kind, fields in self.shared.items():
                part = {name: payload.pop(name) for name in fields if name in payload}
                digest = digest_of(part)
                if part and digest not in shared | new:
                    new[digest] = part
                    lines.append({"kind": kind, "id": digest, "payload": part})
                digests += [digest] if part else []
            payload = {"shared": digests, **payload} if digests else payload
            lines.append({"kind": self.kind, "id": entry.id, "key": entry.key, "payload": payload})
        _append_lines(self.path, [to_json(line) for line in lines])
        shared |= new
        held += entries

    def _payload(self, value: T) -> dict[str, Any]:
        payload: dict[str, Any] = legible(value)
        return payload

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
        """Move the damaged lines, unchanged, to the end of `FILE.damaged`, and return them.

        An incomplete last line remains, since the next append replaces it. The file is replaced
        atomically. The caller must hold its lock.

        Raises:
            UsageError: the file cannot be read, or has lines of another schema.
            ShardbenchError: a file cannot be written; no line is lost.
        """
        damaged = [damage for damage in self.damaged if not damage.torn]
        if damaged:
            path = self.path.resolve()
            lines = path.read_bytes().split(b"\n")
            moved = {damage.line - 1 for damage in damaged}
            block = b"".join(lines[place] + b"\n" for place in sorted(moved))
            kept = b"\n".join(line for place, line in enumerate(lines) if place not in moved)
            try:
                with path.with_name(f"{path.name}.damaged").open("a+b", buffering=0) as file:
                    length = file.seek(0, os.SEEK_END)
                    file.seek(max(0, length - len(block)))
                    if file.readall() != block:  # else a killed earlier attempt has appended it
                        _append(file, block, length)
                replace_file(path, kept)
            except OSError as error:
                raise cannot_be_written(path, error) from None
            self._read[1].clear()
        return damaged


def digest_of(value: Any) -> str:
    """Return a short digest of a value that can be written as JSON."""
    text = json.dumps(to_builtins(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _decoded(content: bytes | Raw, form: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=form)
    except RecursionError:
        raise ValueError("is not JSON: it is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise ValueError(f"is no line of results: {fault(error, form)}") from None
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None


def _is_plain(content: bytes) -> bool:
    """Return whether a line has neither escapes nor nulls nor characters that cannot be printed."""
    escapes = (b"\\", b":null", b": null")
    return not any(mark in content for mark in escapes) and content.decode().isprintable()


def check_is_file(path: Path) -> None:
    """Raise ShardbenchError if a path exists but is no regular file, e.g. a folder or a device."""
    if path.exists() and not path.is_file():
        raise ShardbenchError(f"Results cannot be written to {path}: it is not a file.")


def cannot_be_written(path: Path, error: OSError) -> ShardbenchError:
    """Return the error for a results file that cannot be written."""
    return ShardbenchError(f"Results cannot be written to {path}: {error.strerror or error}.")


def _append_lines(path: Path, lines: Collection[str]) -> None:
    """Write lines after the last complete line of a file; on an error, leave it unchanged."""
    content = "".join(f"{line}\n" for line in lines).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_is_file(path)
        # Unbuffered, because closing would retry to write a buffer that failed to flush.
        with path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # another process may be appending; close unlocks
            file.seek(0)
            held = file.readall() or b""
            end = held.rfind(b"\n") + 1
            try:  # a complete last line may lack only its line feed
                msgspec.json.decode(held[end:], type=dict)
                end, content = len(held), b"\n" + content
            except (ValueError, RecursionError):
                file.truncate(end)
            _append(file, content, end)
    except OSError as error:
        raise cannot_be_written(path, error) from None


def _append(file: FileIO, content: bytes, end: int) -> None:
    rest = memoryview(content)
    try:
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError:
        os.ftruncate(file.fileno(), end)
        raise


@contextmanager
def hold(results: Path) -> Iterator[None]:
    """Lock a results file while the block runs.

    The kernel's lock (`flock`) is on `FILE.lock` in the same folder and ends with the process, even
    if it is killed. The results file need not exist and is not changed. Raise ShardbenchError if
    another process holds the lock (with its id) or if the lock file cannot be written.
    """
    check_is_file(results)
    results = results.resolve()
    lock = results.with_name(f"{results.name}.lock")
    try:
        results.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _acquired(lock, results)
    except OSError as error:
        raise cannot_be_written(results, error) from None
    try:
        with suppress(OSError):  # on a full disk, the lock works without the process id
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        with suppress(OSError):
            lock.unlink()
        os.close(descriptor)


def _acquired(lock: Path, results: Path) -> int:
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous holder may have just removed the file; a lock on that file is void.
            if os.path.samestat(os.fstat(descriptor), lock.stat()):
                return descriptor
        except BlockingIOError:
            who = os.pread(descriptor, 20, 0).decode("ascii", errors="replace").strip()
            os.close(descriptor)
            raise ShardbenchError(
                f"{f'Process {who}' if who else 'Another process'} is measuring into {results}; "
                "wait for it to end, or name another file."
            ) from None
        except FileNotFoundError:
            pass
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
