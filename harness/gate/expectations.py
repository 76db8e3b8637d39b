"""Expectations of cells: types, and reading and writing of the TOML file."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field as item
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from msgspec import Meta, Struct, field, to_builtins

from harness.model.declared import Amount, Count, Name, Number, checked
from harness.model.errors import UsageError
from harness.model.files import read_toml
from harness.model.ids import CellId

Share = Annotated[float, Meta(ge=0, lt=1)]

_ASPECT = re.compile(r"decision|fingerprint|ratio|python_calls|(quality|counters)\..+", re.DOTALL)
_HEADING = """\
# What `shardbench gate` expects of these cells. It writes a new file whenever something differs;
# docs/gate.md says what each key means.

"""


class Expectation(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The expectation of one cell; a field that is None or empty expects nothing yet.

    Attributes:
        given: the problem as the user names it, if the cell's id differs (it has a file's hash).
        against: the variant to compare the cell with; empty for the family's reference.
        quality_tolerance: the share by which a quality may differ; None for the file's tolerance.
        ratio: the lowest and highest accepted value of time / time of `against`.
        python_calls: the number of Python and built-in calls in one call, see `CountedWork`.
        ignore: aspects that the gate ignores: `ratio`, `decision`, `fingerprint`, `python_calls`,
            `quality.NAME`, `counters.NAME`.
    """

    given: Name | Literal[""] = ""
    against: str = ""
    status: Literal["ok", "not installed", "not applicable", "over budget"] = "ok"
    decision: Literal["reference", "same", "own"] | None = None
    fingerprint: Name | None = None
    quality: dict[str, Number] = field(default_factory=dict)
    quality_tolerance: Share | None = None
    counters: dict[str, Count] = field(default_factory=dict)
    ratio: tuple[Amount, Amount] | None = None
    python_calls: Count | None = None
    ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_aspects(self.ignore)
        if self.ratio and not (self.ratio[0] <= self.ratio[1] > 0):
            raise ValueError("'ratio' must be the lowest share, and then the highest one")
        if self.status != "ok" and self.has_figures:
            raise ValueError(
                f"what is expected to be '{self.status}' can have no figures; status must be ok, "
                "or the figures must go"
            )

    @property
    def has_figures(self) -> bool:
        """Whether the expectation has any value other than the status."""
        figures = (self.decision, self.fingerprint, self.quality, self.counters, self.ratio)
        return any(figures) or self.python_calls is not None


class MadeWith(Struct, frozen=True, forbid_unknown_fields=True):
    """The versions of Python and packages that produced the expected values."""

    python: str = ""
    packages: dict[str, str] = field(default_factory=dict)


class Rules(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings at the top of an expectations file, for all of its cells.

    The expectation of a new ratio is its interval, widened by the factor `ratio_slack` at both
    ends. The gate ignores the aspects in `ignore` in every cell.
    """

    schema: Literal[1] = 1
    ratio_slack: Annotated[float, Meta(ge=1, le=1e100)] = 1.5
    quality_tolerance: Share = 1e-9
    ignore: tuple[str, ...] = ()
    made_with: MadeWith = MadeWith()

    def __post_init__(self) -> None:
        _check_aspects(self.ignore)


def _check_aspects(ignored: tuple[str, ...]) -> None:
    for aspect in ignored:
        if not _ASPECT.fullmatch(aspect):
            raise ValueError(
                "'ignore' may hold decision, fingerprint, ratio, python_calls, quality.NAME and "
                f"counters.NAME, "
                f"not '{aspect}'"
            )


@dataclass(frozen=True, slots=True)
class Expectations:
    """The content of an expectations file: expectations by cell id, and the rules for all."""

    cells: Mapping[CellId, Expectation] = item(default_factory=dict)
    rules: Rules = item(default_factory=Rules)


def load_expectations(path: Path) -> Expectations:
    """Read an expectations file. Raise UsageError with the file and the key if it is wrong."""
    # Path.exists raises an error for a name that is too long and for a loop of symbolic links.
    if not os.path.exists(path):  # noqa: PTH110 - see above
        raise UsageError(f"{path} does not exist; 'shardbench gate --init {path}' makes it.")
    document = read_toml(path)
    cells = checked(document.pop("cell", {}), dict[str, Any], f"{path}, cell")
    rules = checked(document, Rules, str(path))
    found: dict[CellId, Expectation] = {}
    for text, values in cells.items():
        try:
            cell = CellId.parse(text)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        if cell in found:
            raise UsageError(f"{path}: '{cell}' is expected twice.")
        found[cell] = checked(values, Expectation, f"{path}, cell '{text}'")
    return Expectations(found, rules)


def to_toml(expectations: Expectations) -> str:
    """Return the text of an expectations file, with cells sorted by family, problem and variant.

    The order depends only on names, so that a diff of two files shows only changed expectations.
    """
    rules = expectations.rules
    document: dict[str, Any] = {
        "schema": rules.schema,
        "ratio_slack": rules.ratio_slack,
        "quality_tolerance": rules.quality_tolerance,
        **to_builtins(rules, order="sorted"),
        "made_with": to_builtins(rules.made_with, order="sorted"),
        "cell": {
            str(cell): to_builtins(expectations.cells[cell], order="deterministic")
            for cell in sorted(
                expectations.cells, key=lambda cell: (cell.family, str(cell.problem), cell.variant)
            )
        },
    }
    return _HEADING + tomli_w.dumps(document)
