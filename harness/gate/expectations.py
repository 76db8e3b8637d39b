"""Expectations of cells: types, the TOML file, and the problems to measure for them."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from msgspec import Meta, Struct, field, to_builtins
from msgspec.structs import replace

from harness.contract.registry import Registry
from harness.measuring.request import Request, request_on
from harness.model.declared import Amount, Count, Name, Number, checked
from harness.model.errors import ShardbenchError, UsageError
from harness.model.files import read_toml
from harness.model.ids import CellId, ProblemId

Value = float | str | tuple[float, float] | None
Figures = dict[str, Value]

Share = Annotated[float, Meta(ge=0, lt=1)]
Aspect = Annotated[
    str, Meta(pattern=r"^(decision|fingerprint|ratio|python_calls|quality[.].+|counters[.].+)$")
]
"""What a gate may ignore."""

_NO_FIGURES: dict[str, Any] = {
    "decision": None,
    "fingerprint": None,
    "quality": {},
    "counters": {},
    "python_calls": None,
    "ratio": None,
}
_HEADING = """\
# What `shardbench gate` expects of these cells. It writes a new file whenever something differs;
# docs/ci.md says what each key means.

"""


class Expectation(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The expectation of one cell; a field that is None or empty expects nothing yet.

    Attributes:
        given: the problem as the user names it, if the cell's id differs (it has a file's hash).
        against: the variant to compare the cell with; empty for the family's reference.
        quality_tolerance: the share by which a quality may differ; None for the file's tolerance.
        ratio: the lowest and highest accepted value of time / time of `against`.
        python_calls: the number of Python and built-in calls in one call, see `CountedWork`.
        ignore: aspects that the gate ignores.
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
    ignore: tuple[Aspect, ...] = ()

    def __post_init__(self) -> None:
        if self.ratio and not (self.ratio[0] <= self.ratio[1] > 0):
            raise ValueError("'ratio' must be the lowest share, and then the highest one")
        if self.status != "ok" and self.figures:
            raise ValueError(
                f"what is expected to be '{self.status}' can have no figures; status must be ok, "
                "or the figures must go"
            )

    @property
    def figures(self) -> Figures:
        """The expected figures by name: `decision`, `fingerprint`, `quality.NAME`, `ratio` ..."""
        named: Figures = {}
        for group in _NO_FIGURES:
            value = getattr(self, group)
            if isinstance(value, dict):
                named |= {f"{group}.{name}": figure for name, figure in value.items()}
            elif value is not None:
                named[group] = value
        return named

    def with_figures(self, figures: Figures, **changes: Any) -> "Expectation":
        """Return this expectation with other figures, and with other changes."""
        fields: dict[str, Any] = _NO_FIGURES | {"quality": {}, "counters": {}} | changes
        for name, value in figures.items():
            group, _, part = name.partition(".")
            if isinstance(fields[group], dict):  # also of a figure whose name is empty
                fields[group][part] = value
            else:
                fields[group] = value
        return replace(self, **fields)


class MadeWith(Struct, frozen=True, forbid_unknown_fields=True):
    """The versions of Python and packages that produced the expected values."""

    python: str = ""
    packages: dict[str, str] = field(default_factory=dict)


class Expectations(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of an expectations file: expectations by cell id, and settings for all cells.

    The expectation of a new ratio is its interval, widened by the factor `ratio_slack` at both
    ends. The gate ignores the aspects in `ignore` in every cell.
    """

    cells: dict[CellId, Expectation] = field(name="cell", default_factory=dict)
    schema: Literal[1] = 1
    ratio_slack: Annotated[float, Meta(ge=1, le=1e100)] = 1.5
    quality_tolerance: Share = 1e-9
    ignore: tuple[Aspect, ...] = ()
    made_with: MadeWith = MadeWith()


def load_expectations(path: Path) -> Expectations:
    """Read an expectations file. Raise UsageError with the file and the key if it is wrong."""
    # Path.exists raises an error for a name that is too long and for a loop of symbolic links.
    if not os.path.exists(path):  # noqa: PTH110 - see above
        raise UsageError(f"{path} does not exist; 'shardbench gate --init {path}' makes it.")
    document = read_toml(path)
    rows = checked(document.pop("cell", {}), dict[str, Any], f"{path}, cell")
    expectations = checked(document, Expectations, str(path))
    for text, values in rows.items():
        try:
            cell = CellId.parse(text)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        if cell in expectations.cells:
            raise UsageError(f"{path}: '{cell}' is expected twice.")
        expectations.cells[cell] = checked(values, Expectation, f"{path}, cell '{text}'")
    return expectations


def to_toml(expectations: Expectations) -> str:
    """Return the text of an expectations file, with cells sorted by family, problem and variant.

    Each figure has a line of its own, and the order depends only on names, so that a diff of two
    files shows only changed expectations.
    """

    def place(item: tuple[CellId, Expectation]) -> tuple[str, str, str]:
        return item[0].family, str(item[0].problem), item[0].variant

    settings = to_builtins(replace(expectations, cells={}))
    del settings["cell"], settings["made_with"]
    tables: list[Iterable[str]] = [_lines(settings)]
    made_with = to_builtins(expectations.made_with, order="deterministic")
    tables.append(["[made_with]", *_lines(made_with)])
    for cell, row in sorted(expectations.cells.items(), key=place):
        figures = to_builtins(row, order="deterministic")
        tables.append([f"[cell.{_key(str(cell))}]", *_lines(figures)])
    return _HEADING + "\n".join("".join(f"{line}\n" for line in table) for table in tables)


def _lines(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield a line `key = value` for each value; those of nested tables have dotted keys."""
    for name, value in table.items():
        key = prefix + _key(name)
        if isinstance(value, dict):
            yield from _lines(value, f"{key}.")
        elif isinstance(value, list | tuple):
            yield f"{key} = [{', '.join(map(_value, value))}]"
        else:
            yield f"{key} = {_value(value)}"


def _key(name: str) -> str:
    return tomli_w.dumps({name: 0}).removesuffix(" = 0\n")


def _value(value: Any) -> str:
    return tomli_w.dumps({"value": value}).removeprefix("value = ").removesuffix("\n")


def to_measure(
    expectations: Expectations, families: Registry
) -> tuple[list[Request], Expectations, dict[CellId, CellId]]:
    """Return a request for each problem, and the expectations by the ids that cells will have.

    Results identify the file of a workload or topology by a hash of its content. If an expectation
    already has such an id and the hash differs, the file has changed: its figures are dropped. The
    last value maps these ids, old to new.

    Raises:
        ShardbenchError: the file has no cell.
        UsageError: the family, variant, workload or topology of a cell is unknown, or cells of one
            problem have different `against` variants.
    """
    if not expectations.cells:
        raise ShardbenchError("The expectations name no cell, so there is nothing to measure.")
    rows = expectations.cells.items()
    # `given` stands at one cell of a problem, and counts for all.
    given = {(cell.family, cell.problem): row.given for cell, row in rows if row.given}
    problems: dict[tuple[str, ProblemId], dict[CellId, Expectation]] = {}
    for cell, row in rows:
        text = given.get((cell.family, cell.problem), "")
        problem = ProblemId.parse(text) if text else cell.problem
        problems.setdefault((cell.family, problem), {})[cell] = replace(row, given=text)
    requests: list[Request] = []
    named: dict[CellId, Expectation] = {}
    renamed: dict[CellId, CellId] = {}
    for (family, problem), expected in problems.items():
        request = _request(families, family, problem, expected)
        requests.append(request)
        for before, row in expected.items():
            cell = request.cell_id(before.variant)
            if cell in named:
                raise UsageError(f"'{cell}' is expected twice.")
            if cell == before:
                named[cell] = row
            elif not row.given:
                named[cell] = replace(row, given=str(before.problem))
            else:
                named[cell] = Expectation(row.given, row.against, ignore=row.ignore)
                renamed[before] = cell
    return requests, replace(expectations, cells=named), renamed


def _request(
    families: Registry, family: str, problem: ProblemId, expected: dict[CellId, Expectation]
) -> Request:
    reference = families.find(family).reference.name
    against = {row.against or reference for row in expected.values()}
    if len(against) > 1:
        raise UsageError(
            f"'{problem}' is compared with {' and '.join(sorted(against))}; the cells of one "
            "problem must have the same 'against'."
        )
    limits = {
        cell.variant: row.ratio[1]
        for cell, row in expected.items()
        if row.ratio and "ratio" not in row.ignore
    }
    variants = tuple(cell.variant for cell in expected)
    return request_on(
        families.find(family), problem, variants, against.pop(), "gate", limits=limits
    )


def first_suite(families: Registry) -> tuple[Expectations, list[str]]:
    """Return expectations without figures for a small suite, and why families are left out.

    The suite has the first benchmark of each family, or else the problem of its first study. On it
    our variants of the first system are compared with today's release, or, without a headline,
    the variants of the study with the reference.
    """
    cells: dict[CellId, Expectation] = {}
    left_out = []
    for family in families.families:
        problems = (*family.benchmarks, *(study.problem for study in family.studies))
        headlines = [statement for statement in family.statements if statement.use == "headline"]
        if headlines:
            against = headlines[0].pairs[-1].before
            ours = [h.pairs[-1].after for h in headlines if h.name == headlines[0].name]
        else:
            against = family.reference.name
            ours = [name for study in family.studies[:1] for name in study.variants]
        if not problems:
            left_out.append(f"{family.name} declares no problem, so it is left out.")
        elif missing := family.find(against).missing():
            left_out.append(f"{family.name} is left out: it needs {', '.join(missing)}.")
        else:
            problem = ProblemId.parse(problems[0])
            for name in (against, *ours):
                if not family.find(name).missing():
                    cells[CellId(family.name, name, problem)] = Expectation(against=against)
    return Expectations(cells), left_out
