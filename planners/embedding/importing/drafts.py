"""Tables as a source has them, and as the planner takes them."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from harness.contract import UsageError, printable
from planners.embedding.tables.files import (
    MOST_DIM,
    MOST_POOLING,
    MOST_ROWS,
    MOST_TABLES,
    Table,
)

_MOST_NAMED = 4
_MOST_NAME = 30
_DIM_STEP = 4
# A spreadsheet takes a cell that begins so for a formula, a reader of tables a line for a comment.
_NOT_FIRST = "=+-@#"
_DTYPES = {
    **dict.fromkeys(("fp32", "float32", "float", "f32", "torchfloat32", "32", "single"), "fp32"),
    **dict.fromkeys(("fp16", "float16", "half", "f16", "torchfloat16", "16"), "fp16"),
    **dict.fromkeys(("bf16", "bfloat16", "torchbfloat16"), "bf16"),
}


class Draft(NamedTuple):
    """A table as its source has it, of `rows` x `dim` elements; `place` is for errors."""

    place: str
    name: str
    rows: int
    dim: int
    pooling_factors: tuple[float, ...]  # of each feature the mean number of indices per sample
    dtype: str


class Notes:
    """The reasons for all that an import assumed, changed or left out, and the names concerned."""

    def __init__(self) -> None:
        self.assumed: dict[str, list[str]] = defaultdict(list)
        self.changed: dict[str, list[str]] = defaultdict(list)
        self.left_out: dict[str, list[str]] = defaultdict(list)


def sentences(notes: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return each reason with the first of the names that it is about; the rest is counted."""
    return tuple(f"{reason}: {_listed(list(dict.fromkeys(notes[reason])))}" for reason in notes)


def _listed(names: Sequence[str]) -> str:
    shown = [_short(name) for name in names[:_MOST_NAMED]]
    if len(names) > _MOST_NAMED:
        shown.append(f"and {len(names) - _MOST_NAMED:,} more")
    return ", ".join(shown)


def _short(name: str) -> str:
    name = printable(name)
    return name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 1]}…"


def known_dtype(text: str, name: str, notes: Notes) -> str | None:
    """Return a table's data type by any of its usual names; for others None, and note it."""
    dtype = _DTYPES.get(re.sub(r"[\W_]", "", text.lower()))
    if dtype is None:
        reason = f"tables of data type {text}, which the planner here does not know"
        notes.left_out[reason].append(name)
    return dtype


def finished(drafts: Iterable[Draft], source: str, notes: Notes) -> tuple[Table, ...]:
    """Return the tables as planner and torch take them; raises UsageError for none or too many."""
    from torch import nn

    # Torch refuses the names of what its own modules have, such as `type`.
    taken = set(dir(nn.ModuleDict()))
    numbers: dict[str, Iterator[int]] = defaultdict(lambda: count(2))
    tables: list[Table] = []
    for number, draft in enumerate(drafts):
        if number == MOST_TABLES:
            raise UsageError(f"{source} lists more tables than {MOST_TABLES:,}.")
        _check(draft)
        wanted = draft.name or f"table_{number}"
        name = _free_name(wanted, taken, numbers)
        if name != wanted:
            reason = "names were changed to such as torch and files of tables take, each once"
            notes.changed[reason].append(f"{_short(wanted)} to {_short(name)}")
        dim = -(-draft.dim // _DIM_STEP) * _DIM_STEP
        if dim != draft.dim:
            reason = f"dim was rounded up to a multiple of {_DIM_STEP}, which fbgemm's kernels need"
            notes.changed[reason].append(f"{draft.name} {draft.dim} to {dim}")
        tables.append(Table(name, draft.rows, dim, draft.pooling_factors, draft.dtype))
    if not tables:
        reasons = "; ".join(sentences(notes.left_out))
        raise UsageError(
            f"{source} holds no embedding table{f' (left out: {reasons})' if reasons else ''}."
        )
    return tuple(tables)


def _check(draft: Draft) -> None:
    for what, value, most in (("rows", draft.rows, MOST_ROWS), ("dim", draft.dim, MOST_DIM)):
        if not 1 <= value <= most:
            raise UsageError(
                f"{draft.place}: {what} must be a whole number from 1 to {most:,}, not {value}."
            )
    for factor in draft.pooling_factors:
        if not 0 < factor <= MOST_POOLING:
            raise UsageError(
                f"{draft.place}: a pooling factor must be a positive number up to "
                f"{MOST_POOLING:,}, not {factor:g}."
            )


def _free_name(name: str, taken: set[str], numbers: Mapping[str, Iterator[int]]) -> str:
    """Return a name like this one that torch and files of tables take, and take it."""
    usable = "".join(letter if letter.isprintable() else "_" for letter in name.strip())
    usable = usable.replace(".", "_") or "_"
    if usable[0] in _NOT_FIRST:
        usable = f"_{usable}"
    free = usable
    while free in taken:
        free = f"{usable}_{next(numbers[usable])}"
    taken.add(free)
    return free
