"""Workloads: their parameters, inventories, imported files and captured files."""

import gzip
import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct, convert, inspect, structs

from harness.model.errors import UsageError, unknown
from harness.model.files import read_file, read_json, replace_file
from harness.model.ids import WorkloadSpec, whole_number
from harness.model.machine import installed_versions
from harness.model.topology import Topology

Cell = str | int | float


class Column(Struct, frozen=True):
    """A column of an inventory: one number or text for each part.

    Attributes:
        name: the column's name in files and options.
        title: the heading in a table; if it is empty, the heading is `name`.
        unit: the unit of the numbers, in words, such as `indices a sample`.
        kind: `text`, `count` (whole), `number` or `bytes`.
        scale: the axis of the column's histogram; empty for no histogram.
        is_shown: whether the terminal's table has the column; files always have it.
    """

    name: str
    title: str = ""
    unit: str = ""
    kind: Literal["text", "count", "number", "bytes"] = "text"
    scale: Literal["", "linear", "log"] = ""
    is_shown: bool = True

    @property
    def heading(self) -> str:
        """The heading in a table: the title, or else the name."""
        return self.title or self.name


class Inventory(Struct, frozen=True):
    """The parts of a workload, one row for each.

    Attributes:
        title: the subject of the inventory.
        part: the word for one part, such as `table`.
        rows: for each part, its cells in the order of `columns`; numbers are finite and at least 0.
        summary: the totals over all parts, in one line.
        sort: the name of the column that measures a part's size, the default to sort by.
        notes: further notes for the reader, one sentence each without a full stop.
    """

    title: str
    part: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    summary: str
    sort: str
    notes: tuple[str, ...] = ()

    def place(self, name: str) -> int:
        """Return a column's index; raise UsageError, which suggests similar names, if unknown."""
        names = [column.name for column in self.columns]
        if name not in names:
            raise unknown("column", name, names)
        return names.index(name)


def require_topology(workload: WorkloadSpec, topology: Topology | None) -> Topology:
    """Return the topology; raise UsageError if there is none, because the workload depends on it.

    For an inventory, which users may request without one.
    """
    if topology is None:
        raise UsageError(
            f"Workload '{workload}' depends on the machines; name them with --topology and --gpus."
        )
    return topology


class ImportRequest(Struct, frozen=True):
    """The request to import a workload from a file of another program.

    Attributes:
        source: the file to read, or `module:function`.
        target: the file to write the workload to; its suffix selects the file format.
        format: the source's format, in the family's words; empty to guess from its name.
        columns: by field, the source's column with its values.
        assumed: by field, the value to use if the source lacks the field.
    """

    source: str
    target: str
    format: str = ""
    columns: Mapping[str, str] = {}
    assumed: Mapping[str, str] = {}


class Imported(Struct, frozen=True):
    """An imported workload.

    `content` is the content of the file to write. `assumed` lists values that the source lacked,
    `changed` values that differ from the source, and `left_out` parts of the source that were not
    imported; one sentence each without a full stop.
    """

    content: bytes
    inventory: Inventory
    assumed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


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
        digits, hashed = len(str(len(ordered) - 1)), {}
        for rank, name in enumerate(ordered):
            text = name.encode("utf-8", "surrogatepass")
            digest = hashlib.blake2b(text, key=self._key, digest_size=6).hexdigest()
            hashed[name] = f"{rank:0{digits}}_{digest}"
        return hashed


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
    content = read_json(path)
    header = content.pop(_HEADER, None)
    if not isinstance(header, dict) or "family" not in header:
        raise UsageError(f"{path} is no file that shardbench.capture wrote.")
    if header["family"] != family:
        raise UsageError(
            f"{path} was captured from family '{header['family']}', not from '{family}'."
        )
    if header.get("version") != _VERSION:
        raise UsageError(
            f"{path} is of version {header.get('version')!r}; this shardbench reads {_VERSION}."
        )
    return content


CAPTURED_FILE = "FILE.json.gz"
"""The name under which a family declares the parameters of its captured files."""

Seed = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]


class Parameters(Struct, frozen=True, kw_only=True):
    """Parameters of one kind of workload; a subclass declares them as fields with defaults.

    A field is an int or a float with limits, a Literal, or a tuple of these; a tuple gives the
    separator of its items in `Meta(extra={"separator": "x"})`. A subclass can raise ValueError in
    `__post_init__` for values that exclude each other.
    """


P = TypeVar("P", bound=Parameters)


def workload_parameters(spec: WorkloadSpec, family: str, kinds: Mapping[str, type[P]]) -> P:
    """Return a workload's parameters as the struct that a family declares for its name.

    For a captured file it is the struct under the key CAPTURED_FILE. Raise UsageError for an
    unknown name or parameter, or a value that is not allowed.
    """
    name = CAPTURED_FILE if is_captured_file(spec.name) else spec.name
    if name not in kinds:
        raise unknown(f"workload of family '{family}',", spec.name, kinds)
    return read_parameters(spec, kinds[name])


def read_parameters(spec: WorkloadSpec, kind: type[P]) -> P:
    """Return a workload's parameters as a `kind`; raise UsageError for a wrong name or value."""
    types = {field.encode_name: field.type for field in structs.fields(kind)}
    values = {}
    for key, text in spec.parameters.items():
        if key not in types:
            raise unknown(f"parameter of workload '{spec.name}',", key, types)
        declared = inspect.type_info(types[key])
        if isinstance(declared, inspect.UnionType):  # with None, which stands for the default
            declared = declared.types[0]
        try:
            values[key] = convert(_parsed(text, declared), types[key])
        except ValueError:
            raise UsageError(
                f"Parameter '{key}' of workload '{spec}' must be {_allowed(declared)}, "
                f"not '{text}'."
            ) from None
    try:
        return convert(values, kind)
    except ValueError as error:
        raise UsageError(f"Workload '{spec}': {error}.") from None


def _parsed(text: str, kind: inspect.Type) -> Any:
    """Convert a text to a number or a list, or return it unchanged; limits are not checked."""
    match kind:
        case inspect.IntType():
            return whole_number(text)
        case inspect.FloatType():
            return float(text)
        case inspect.Metadata(type=inspect.VarTupleType(item_type=item), extra={"separator": mark}):
            return [_parsed(part, item) for part in text.split(mark)]
    return text


def _allowed(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata(type=inspect.VarTupleType() as items, extra={"separator": mark}):
            at_most = f", at most {items.max_length} of them" if items.max_length else ""
            return f"{_allowed(items.item_type)}, or several joined by {mark}{at_most}"
        case inspect.LiteralType(values=values):
            return f"one of {', '.join(map(str, values))}"
        case inspect.FloatType(gt=above, ge=least, lt=below, le=most):
            words = ("above", "of at least", "below", "at most")
            limits = zip(words, (above, least, below, most), strict=True)
            listed = ", ".join(f"{word} {limit:g}" for word, limit in limits if limit is not None)
            return f"a number {listed}".strip()
        case inspect.IntType(ge=least, le=None):
            return f"a whole number of at least {least}"
        case inspect.IntType(ge=least, le=most):
            return f"a whole number from {least} to {most:,}"
    raise TypeError(f"A parameter cannot be of type {kind}.")
