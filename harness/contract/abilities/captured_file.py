"""Write and read the files of `shardbench.capture`: one JSON object with a header."""

import gzip
import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.model.errors import UsageError
from harness.model.files import read_file, read_json, replace_file
from harness.model.ids import WorkloadSpec
from harness.model.versions import installed_versions

CAPTURED_SUFFIXES = (".json", ".json.gz")

_HEADER = "shardbench"
_VERSION = 1


class Names:
    """Translate table names for a captured file: leave them unchanged, or hash them.

    A hashed name is its rank among the file's names, then its hash. The rank keeps the sort order,
    because planners break ties by name. The hash is keyed with `key`, which is not in the file, so
    nobody can test likely names. An empty `key` means a random one; with a fixed `key`, a name has
    the same hash in every file.
    """

    def __init__(self, hashed: bool = False, key: str = "") -> None:
        self.hashed = hashed
        self._key = (key or secrets.token_hex()).encode()[:64]

    def written(self, names: Iterable[str]) -> dict[str, str]:
        """Map each name to its text in the file; distinct names get distinct texts."""
        ordered = sorted(set(names))
        if not self.hashed:
            return {name: name for name in ordered}
        digits = len(str(len(ordered) - 1))
        return {
            name: f"{index:0{digits}}_{self._digest(name)}" for index, name in enumerate(ordered)
        }

    def _digest(self, name: str) -> str:
        text = name.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, key=self._key, digest_size=6).hexdigest()


def is_captured_file(name: str) -> bool:
    """Return whether a workload's name ends like a captured file's (`.json`, `.json.gz`)."""
    return name.endswith(CAPTURED_SUFFIXES)


def labelled(spec: WorkloadSpec) -> WorkloadSpec:
    """Return a workload under its name in results.

    A captured file is named by its base name and a hash of its content; other workloads keep their
    names. Raise UsageError if the file cannot be read.
    """
    return spec.of_file(read_file(spec.name)) if is_captured_file(spec.name) else spec


def write_captured(path: Path, family: str, names: Names, content: Mapping[str, Any]) -> None:
    """Write a captured file atomically, or raise OSError; `content` consists of JSON types."""
    header = {
        "version": _VERSION,
        "family": family,
        "names": "hashed" if names.hashed else "as they are",
        "packages": installed_versions(),
    }
    text = json.dumps({_HEADER: header, **content}, allow_nan=False, indent=1) + "\n"
    # mtime=0: the gzip header has no time, so equal content makes a byte-identical file.
    packed = path.name.endswith(".gz")
    replace_file(path, gzip.compress(text.encode(), mtime=0) if packed else text)


def read_captured(path: str | Path, family: str) -> dict[str, Any]:
    """Return a captured file's content; raise UsageError for another kind, family or version."""
    held = read_json(path)
    header = held.pop(_HEADER, None)
    if not isinstance(header, dict) or "family" not in header:
        raise UsageError(f"{path} is no file that shardbench.capture wrote.")
    if header["family"] != family:
        raise UsageError(
            f"{path} was captured from family '{header['family']}', not from '{family}'."
        )
    if header.get("version") != _VERSION or header["version"] is True:
        raise UsageError(
            f"{path} is of version {header.get('version')!r}; this shardbench reads {_VERSION}."
        )
    return held
