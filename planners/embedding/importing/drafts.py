"""Turns unchecked tables from an imported source into tables that the planner accepts."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Annotated, NamedTuple

from msgspec import Meta

from harness.contract import UsageError, printable
from planners.embedding.tables.files import MOST_DIM, MOST_TABLES, Table, value_of

_MOST_NAMED = 4
_MOST_NAME = 30
_DIM_STEP = 4
_DIM = Annotated[int, Meta(ge=1, le=MOST_DIM, description=f"a whole number from 1 to {MOST_DIM:,}")]
# A cell that starts so is a formula in a spreadsheet; a line may be read as a comment.
_NOT_FIRST = "=+-@#"
_DTYPES = {
    **dict.fromkeys(("fp32", "float32", "float", "f32", "torchfloat32", "32", "single"), "fp32"),
    **dict.fromkeys(("fp16", "float16", "half", "f16", "torchfloat16", "16"), "fp16"),
    **dict.fromkeys(("bf16", "bfloat16", "torchbfloat16"), "bf16"),
}


class Draft(NamedTuple):
    """An unchecked table, as its source describes it; error messages contain its `place`."""

    place: str
    name: str
    rows: int | str
    dim: int | str
    pooling_factors: tuple[float, ...] | str  # mean number of indices per sample, by feature
    dtype: str
    lookup: str


class Notes:
    """An import's assumptions, changes and omissions: names of tables or features, by reason."""

    def __init__(self) -> None:
        self.assumed: dict[str, list[str]] = defaultdict(list)
        self.changed: dict[str, list[str]] = defaultdict(list)
        self.left_out: dict[str, list[str]] = defaultdict(list)


def sentences(notes: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return a sentence for each reason, with its first names and the number of the others."""
    return tuple(f"{reason}: {_listed(list(dict.fromkeys(notes[reason])))}" for reason in notes)


def _listed(names: Sequence[str]) -> str:
    shown = [_short(name) for name in names[:_MOST_NAMED]]
    if len(names) > _MOST_NAMED:
        shown.append(f"and {len(names) - _MOST_NAMED:,} more")
    return ", ".join(shown)


def _short(name: str) -> str:
    name = printable(name)
    return name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 1]}…"


def finished(drafts: Iterable[Draft], source: str, notes: Notes) -> tuple[Table, ...]:
    """Return valid tables; raises UsageError for an invalid draft, no table or too many tables.

    Names that torch rejects and dims that fbgemm rejects are changed, and tables of other data
    types are left out; each with a note.
    """
    from torch import nn

    # Torch refuses names of attributes of its own modules, such as `type`.
    taken = set(dir(nn.ModuleDict()))
    numbers: dict[str, Iterator[int]] = defaultdict(lambda: count(2))
    tables: list[Table] = []
    for number, draft in enumerate(drafts):
        if number == MOST_TABLES:
            raise UsageError(f"{source} lists more tables than {MOST_TABLES:,}.")
        wanted = draft.name or f"table_{number}"
        dtype = _DTYPES.get(re.sub(r"[\W_]", "", draft.dtype.lower()))
        if dtype is None:
            reason = f"tables of data type {draft.dtype}, which the planner here does not know"
            notes.left_out[reason].append(wanted)
            continue
        rows = value_of("rows", draft.rows, draft.place)
        given = value_of("dim", draft.dim, draft.place, _DIM)
        factors = value_of("pooling_factor", draft.pooling_factors, draft.place)
        lookup = value_of("lookup", draft.lookup, draft.place)
        name = _free_name(wanted, taken, numbers)
        if name != wanted:
            reason = "names were changed to unique ones that torch and files of tables take"
            notes.changed[reason].append(f"{_short(wanted)} to {_short(name)}")
        dim = -(-given // _DIM_STEP) * _DIM_STEP
        if dim != given:
            reason = f"dim was rounded up to a multiple of {_DIM_STEP}, which fbgemm's kernels need"
            notes.changed[reason].append(f"{wanted} {given} to {dim}")
        tables.append(Table(name, rows, dim, factors, dtype, lookup))
    if not tables:
        reasons = "; ".join(sentences(notes.left_out))
        raise UsageError(
            f"{source} holds no embedding table{f' (left out: {reasons})' if reasons else ''}."
        )
    return tuple(tables)


def _free_name(name: str, taken: set[str], numbers: Mapping[str, Iterator[int]]) -> str:
    """Return a valid name similar to `name` that is not yet in `taken`, and add it there."""
    usable = "".join(letter if letter.isprintable() else "_" for letter in name.strip())
    usable = usable.replace(".", "_") or "_"
    if usable[0] in _NOT_FIRST:
        usable = f"_{usable}"
    free = usable
    while free in taken:
        free = f"{usable}_{next(numbers[usable])}"
    taken.add(free)
    return free
