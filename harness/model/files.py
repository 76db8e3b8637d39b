"""Read files with a size limit, write files atomically, and write and clean JSON values."""

import gzip
import io
import json
import math
import numbers
import os
import shutil
import stat
import tomllib
import zlib
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec

from harness.model.errors import UsageError, printable

MOST_BYTES = 2**30
_MOST_JSON_BYTES = 2**28
_MOST_NESTED = 20


def read_file(path: str | Path, called: str = "") -> bytes:
    """Return the content of a file. Errors name the file `called`, or else its path.

    Raise UsageError if the file cannot be read, is not a regular file (a pipe may never end) or is
    larger than 1 GiB.
    """
    name = called or str(path)
    try:
        # Without O_NONBLOCK, opening a pipe without a writer would block.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{name} cannot be read: it must be a regular file.")
            content = b"" if status.st_size > MOST_BYTES else file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}.") from None
    except ValueError:  # the path has a NUL or cannot be encoded
        raise UsageError(f"{name} cannot be read: no file can be called so.") from None
    if max(status.st_size, len(content)) > MOST_BYTES:
        raise UsageError(f"{name} cannot be read: it must hold at most {MOST_BYTES:,} bytes.")
    return content


def replace_file(path: Path, content: str | bytes) -> Path:
    """Write a file atomically and return its path; write directly into a device or a pipe.

    If several processes or threads write the file, it has the content of one of them.
    """
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return path
    partial = path.with_name(f".{token_hex(8)}{path.suffix}.partial")  # each writer has its own
    try:
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, partial)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path


def read_json(path: str | Path) -> dict[str, Any]:
    """Read a JSON object from a file, or from a gzip file `.gz`. Raise UsageError if invalid."""
    content = read_file(path)
    if str(path).endswith(".gz"):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
                content = file.read(_MOST_JSON_BYTES + 1)
        except (OSError, EOFError, zlib.error):
            raise UsageError(f"{path} is no complete gzip file.") from None
    if len(content) > _MOST_JSON_BYTES:
        raise UsageError(f"{path} must hold at most {_MOST_JSON_BYTES:,} bytes of JSON text.")
    try:
        held = json.loads(content)
    except (ValueError, RecursionError):
        raise UsageError(f"{path} does not hold JSON text.") from None
    if not isinstance(held, dict):
        raise UsageError(f"{path}: it must hold one JSON object.")
    return held


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file. Raise UsageError if it cannot be read or is not TOML."""
    try:
        return tomllib.loads(read_file(path).decode())
    except (ValueError, RecursionError) as error:  # includes TOMLDecodeError, and text not in UTF-8
        raise UsageError(f"{path} is not TOML: {' '.join(str(error).split())}.") from None


def plain_number(value: Any) -> int | float:
    """Convert a numpy number to int or float. Raise TypeError for any other value."""
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise TypeError(f"{type(value).__name__} cannot be stored")


def to_json(value: Any, indent: int | None = None) -> str:
    """Return JSON text, with null for NaN and infinities; without indent it is compact."""
    content = msgspec.json.encode(value, enc_hook=plain_number)
    return (content if indent is None else msgspec.json.format(content, indent=indent)).decode()


def legible(value: Any) -> Any:
    """Return a value in JSON types, with unprintable characters escaped.

    Escapes replace control characters other than line feeds, marks that reverse the direction of
    text, and lone surrogates. Nulls, NaN and infinities are left out of objects, and are null in
    lists. "..." replaces values nested more than 20 deep.
    """
    return _legible(msgspec.to_builtins(value, str_keys=True, enc_hook=plain_number), _MOST_NESTED)


def _legible(value: Any, most_nested: int) -> Any:
    if isinstance(value, str):
        return "\n".join(map(printable, value.split("\n")))
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if not isinstance(value, dict | list | tuple):
        return value
    if not most_nested:
        return "..."
    if not isinstance(value, dict):
        return [_legible(item, most_nested - 1) for item in value]
    items = {printable(name): _legible(item, most_nested - 1) for name, item in value.items()}
    return {name: item for name, item in items.items() if item is not None}
