"""Results files with one JSON line per cell; a killed writer leaves the file readable."""

import fcntl
import json
import math
import numbers
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, NoReturn

from harness.model.cell import SCHEMA, Cell
from harness.model.declared import fault
from harness.model.errors import ShardbenchError, UsageError
from harness.model.files import read_file, replace_file
from harness.model.ids import CellId

_BLOCK_BYTES = 1 << 16


class OtherSchema(ValueError):
    """A line with the schema of another version of shardbench; it is not damaged."""


def parse_line(line: bytes) -> Cell:
    """Parse a stored line.

    Raises:
        OtherSchema: the line has another schema than this version.
        ValueError: the line is no cell; the message continues a sentence such as "Line 3 ...".
    """
    try:
        record = json.loads(line, parse_constant=_no_number, parse_float=_finite_number)
    except RecursionError:
        raise ValueError("is not JSON: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError("must be a JSON object")
    schema = record.get("schema")
    if type(schema) is not int:
        raise ValueError(f"is no cell: 'schema' must be {SCHEMA}")
    if schema != SCHEMA:
        raise OtherSchema(f"has schema {str(schema)[:40]}; this reads {SCHEMA}")
    try:
        return Cell.of(record)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"is no cell: {fault(error, Cell)}") from None


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _finite_number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is no finite number")
    return value


def _finite(value: Any) -> Any:
    """Replace infinities and NaN by None, since JSON has neither, and convert numpy numbers."""
    if isinstance(value, numbers.Real) and not isinstance(value, int | float):
        value = int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def to_json(record: Any, indent: int | None = None) -> str:
    """Return strict JSON text, with null for NaN and infinities."""
    return json.dumps(_finite(record), indent=indent, ensure_ascii=False, allow_nan=False)


def append_cells(path: Path, cells: Sequence[Cell]) -> None:
    """Append all cells to a results file and flush it to disk, or leave it unchanged on an error.

    First remove an incomplete last line of a killed writer. Raise ShardbenchError if the file
    cannot be written.
    """
    append_lines(path, [to_json(cell.record()) for cell in cells])


def append_lines(path: Path, lines: Sequence[str]) -> None:
    """Append JSON lines to a file, under the same guarantees as `append_cells`."""
    # A path may contain bytes that are not UTF-8; they are written as JSON escapes.
    content = "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_is_file(path)
        # Unbuffered, because closing would retry to write a buffer that failed to flush.
        with path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # another process may be appending; close unlocks
            _write_behind(file, content)
    except OSError as error:
        raise cannot_be_written(path, error) from None


def check_is_file(path: Path) -> None:
    """Raise ShardbenchError if a path exists but is no regular file, e.g. a folder or a device."""
    if path.exists() and not path.is_file():
        raise ShardbenchError(f"Results cannot be written to {path}: it is not a file.")


def cannot_be_written(path: Path, error: OSError) -> ShardbenchError:
    """Return the error for a results file that cannot be written."""
    return ShardbenchError(f"Results cannot be written to {path}: {error.strerror or error}.")


def _write_behind(file: FileIO, content: bytes) -> None:
    """Write lines after the last complete line; on OSError, remove them from the file again."""
    length = file.seek(0, os.SEEK_END)
    end = _end_of_last_line(file, length)
    if end < length:
        file.seek(end)
        tail = file.readall()
        if tail is not None and _is_whole(tail):  # a complete line that only lacks its line feed
            end, content = length, b"\n" + content
        file.truncate(end)
    _append(file, content, end)


def _append(file: FileIO, content: bytes, end: int) -> None:
    rest = memoryview(content)
    try:
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError:
        os.ftruncate(file.fileno(), end)
        raise


def _end_of_last_line(file: FileIO, length: int) -> int:
    end = length
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        file.seek(start)
        found = (file.read(end - start) or b"").rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _is_whole(line: bytes) -> bool:
    """Return whether a line is a JSON object, whose beginning alone is never one."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def whole_lines(content: bytes) -> list[bytes]:
    """Split a file of JSON lines; leave out an incomplete last line, which a killed writer left."""
    *lines, last = content.split(b"\n")
    return [*lines, last] if _is_whole(last) else lines


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged line, by its number, and the reason; `torn` if it is an incomplete last line."""

    path: Path
    line: int
    why: str
    torn: bool

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: it {self.why}."


def read_cells(path: Path, on_damage: Callable[[Damage], None] | None = None) -> Iterator[Cell]:
    """Yield the cells of a results file in order. Raise UsageError if it cannot be read.

    Skip damaged lines and pass them to `on_damage`. Without `on_damage`, a damaged line is an error
    unless it is an incomplete last line, the only damage that a killed writer leaves.
    """
    lines = read_file(path).split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield parse_line(line)
        except OtherSchema as error:
            raise UsageError(f"{path}, line {number}: it {error}.") from None
        except ValueError as error:
            damage = Damage(path, number, str(error), torn=number == len(lines))
            if on_damage is not None:
                on_damage(damage)
            elif not damage.torn:
                raise UsageError(str(damage)) from None


def read_whole(path: Path) -> dict[CellId, Cell]:
    """Return the cells of a results file of one run, by id.

    Raise ShardbenchError if the file cannot be read, has no cell, has a damaged or incomplete line,
    or has two different cells with the same id.
    """
    damaged: list[Damage] = []
    cells: dict[CellId, Cell] = {}
    for cell in read_cells(path, damaged.append):
        if cells.setdefault(cell.id, cell) != cell:
            raise ShardbenchError(
                f"{path} holds the cell '{cell.id}' twice, with different contents; "
                "the results of one run can be judged."
            )
    if damaged:
        raise ShardbenchError(f"{str(damaged[0]).rstrip('.')}; only whole results can be judged.")
    if not cells:
        raise ShardbenchError(f"{path} holds no cell, so there is nothing to judge.")
    return cells


def set_damaged_aside(path: Path) -> list[Damage]:
    """Move the damaged lines of a results file, unchanged, to the end of `FILE.damaged`.

    An incomplete last line remains, since the next append replaces it. The results file is replaced
    atomically. The caller must hold its lock (`harness.store.lock`).

    Raises:
        UsageError: the file cannot be read, or has lines of another schema.
        ShardbenchError: a file cannot be written; no line is lost.
    """
    found: list[Damage] = []
    if path.exists():
        list(read_cells(path, found.append))
    damaged = [damage for damage in found if not damage.torn]
    if damaged:
        path = path.resolve()
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
    return damaged
