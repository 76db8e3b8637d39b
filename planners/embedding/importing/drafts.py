"""Tables as a source has them, made into such as the planner takes; and what is said about that."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from harness.contract import UsageError
from harness.model.errors import printable
from planners.embedding.tables import MOST_DIM, MOST_POOLING, MOST_ROWS, MOST_TABLES, Table

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


@dataclass(frozen=True, slots=True)
class Draft:
    """A table as its source has it, of `rows` x `dim` elements; `place` is for errors.

    `pooling_factors` holds the mean number of indices per sample of each feature.
    """

    place: str
    name: str
    rows: int
    dim: int
    pooling_factors: tuple[float, ...]
    dtype: str = "fp32"


@dataclass(slots=True)
class Notes:
    """What is to be said about an import: reasons, and the names that each is about, once each."""

    assumed: dict[str, dict[str, None]] = field(default_factory=dict)
    changed: dict[str, dict[str, None]] = field(default_factory=dict)
    left_out: dict[str, dict[str, None]] = field(default_factory=dict)

    def assume(self, what: str, name: str) -> None:
        """Note what the source did not say of something."""
        self.assumed.setdefault(what, {})[name] = None

    def change(self, what: str, name: str) -> None:
        """Note what is not as the source has it."""
        self.changed.setdefault(what, {})[name] = None

    def leave_out(self, why: str, name: str) -> None:
        """Note what is not imported."""
        self.left_out.setdefault(why, {})[name] = None


def sentences(notes: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """Return each reason with how many it is about and the first of their names."""
    return tuple(f"{reason}: {named(names)}" for reason, names in notes.items())


def named(names: Collection[str]) -> str:
    """Return names, joined; beyond four the rest is counted."""
    shown = [_short(name) for name in islice(names, _MOST_NAMED)]
    if len(names) > _MOST_NAMED:
        shown.append(f"and {len(names) - _MOST_NAMED:,} more")
    return ", ".join(shown)


def _short(name: str) -> str:
    name = printable(name)
    return name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 1]}…"


def dtype_of(text: str) -> str | None:
    """Return a data type of tables by any of its usual names, None where the planner has none."""
    return _DTYPES.get(re.sub(r"[\W_]", "", text.lower()))


def finished(drafts: Iterable[Draft], source: str, notes: Notes) -> tuple[Table, ...]:
    """Return the tables, with names and dimensions that the planner and torch take.

    Raises:
        UsageError: there is none, there are too many, or one is out of every bound.
    """
    names = _Names(notes)
    tables: list[Table] = []
    for number, draft in enumerate(drafts):
        if number == MOST_TABLES:
            raise UsageError(f"{source} lists more tables than {MOST_TABLES:,}.")
        _check(draft)
        tables.append(
            Table(
                names.usable(draft.name or f"table_{number}"),
                draft.rows,
                _usable_dim(draft, notes),
                draft.pooling_factors,
                draft.dtype,
            )
        )
    if not tables:
        reasons = "; ".join(sentences(notes.left_out))
        raise UsageError(
            f"{source} holds no embedding table{f' (left out: {reasons})' if reasons else ''}."
        )
    return tuple(tables)


def _check(draft: Draft) -> None:
    if not 1 <= draft.rows <= MOST_ROWS:
        allowed = f"a whole number from 1 to {MOST_ROWS:,}"
        raise UsageError(f"{draft.place}: rows must be {allowed}, not {draft.rows}.")
    if not 1 <= draft.dim <= MOST_DIM:
        allowed = f"a whole number from 1 to {MOST_DIM:,}"
        raise UsageError(f"{draft.place}: dim must be {allowed}, not {draft.dim}.")
    for factor in draft.pooling_factors:
        if not 0 < factor <= MOST_POOLING:
            raise UsageError(
                f"{draft.place}: a pooling factor must be a positive number up to "
                f"{MOST_POOLING:,}, not {factor:g}."
            )


def _usable_dim(draft: Draft, notes: Notes) -> int:
    if draft.dim % _DIM_STEP == 0:
        return draft.dim
    dim = draft.dim + _DIM_STEP - draft.dim % _DIM_STEP
    notes.change(
        f"dim was rounded up to a multiple of {_DIM_STEP}, which fbgemm's kernels need",
        f"{draft.name} {draft.dim} to {dim}",
    )
    return dim


class _Names:
    """Names that torch and files of tables take, each given once."""

    def __init__(self, notes: Notes) -> None:
        from torch import nn

        self._notes = notes
        # Torch refuses the names of what its own modules have, such as `type`.
        self._taken = set(dir(nn.ModuleDict()))
        self._numbers: dict[str, int] = {}

    def usable(self, name: str) -> str:
        """Return a name that is like this one and free, and take it."""
        usable = "".join(letter if letter.isprintable() else "_" for letter in name.strip())
        usable = usable.replace(".", "_") or "_"
        if usable[0] in _NOT_FIRST:
            usable = f"_{usable}"
        free, number = usable, self._numbers.get(usable, 1)
        while free in self._taken:
            number += 1
            free = f"{usable}_{number}"
        self._numbers[usable] = number
        self._taken.add(free)
        if free != name:
            self._notes.change(
                "names were changed to such as torch and files of tables take, each once",
                f"{_short(name)} to {_short(free)}",
            )
        return free
