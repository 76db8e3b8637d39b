"""What a gate expects of cells: a TOML file, read with every key and value checked, and written."""

import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from harness.errors import UsageError, unknown
from harness.reading import read_file

T = TypeVar("T")
D = TypeVar("D")

SCHEMA = 1
RATIO_SLACK = 1.5
QUALITY_TOLERANCE = 1e-9
STATUSES = ("ok", "not installed", "not applicable", "over budget")
DECISIONS = ("reference", "same", "own")
FIGURES = ("quality", "counters")

_FILE_KEYS = ("schema", "ratio_slack", "quality_tolerance", "ignore", "made_with", "cell")
_MADE_WITH_KEYS = ("python", "packages")
_CELL_KEYS = (
    *("given", "against", "status", "decision", "fingerprint", "quality", "quality_tolerance"),
    *("counters", "ratio", "ignore"),
)
_WHOLE_ASPECTS = ("decision", "fingerprint", "ratio")
_ASPECTS = f"a list of {', '.join(_WHOLE_ASPECTS)}, quality.NAME or counters.NAME"
_SHARE = "a number from 0 to below 1"
_CELL_ID = re.compile(r"[^/@]+/[^@]+@.+", re.DOTALL)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")

_HEADING = """\
# What `shardbench gate` expects of these cells. It writes a new file whenever something differs;
# docs/gate.md says what each key means.
"""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is expected of one cell; what is None or empty has no expectation yet.

    Attributes:
        cell: the id that results have for it.
        given: the problem as it is to be asked for, where the id does not say it (a file).
        against: the variant that it is compared with; empty for the family's reference.
        status: one of STATUSES.
        decision: one of DECISIONS.
        fingerprint: that of the decision.
        quality: figures of the decision by name.
        quality_tolerance: by which share a quality may differ; None for the file's.
        counters: counts of work by name.
        ratio: lowest and highest share of the time of `against`.
        ignore: what is not judged: `ratio`, `decision`, `fingerprint`, `quality.NAME`,
            `counters.NAME`.
    """

    cell: str
    given: str = ""
    against: str = ""
    status: str = "ok"
    decision: str | None = None
    fingerprint: str | None = None
    quality: Mapping[str, float] = field(default_factory=dict)
    quality_tolerance: float | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    ratio: tuple[float, float] | None = None
    ignore: tuple[str, ...] = ()

    @property
    def has_figures(self) -> bool:
        """Whether anything is expected beyond the status."""
        figures = (self.decision, self.fingerprint, self.quality, self.counters, self.ratio)
        return any(figures)


@dataclass(frozen=True, slots=True)
class Expectations:
    """The expected cells by id, and what they were made with.

    A new ratio is expected within its interval, wider by the factor `ratio_slack` either way.
    `ignore` is not judged in any cell.
    """

    cells: Mapping[str, Expectation]
    ratio_slack: float = RATIO_SLACK
    quality_tolerance: float = QUALITY_TOLERANCE
    ignore: tuple[str, ...] = ()
    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)


def load_expectations(path: Path) -> Expectations:
    """Read an expectations file.

    Raises:
        UsageError: it cannot be read, is no TOML, has an unknown key or a value that is not
            allowed; names the file and the key.
    """
    # Path.exists raises where a name is too long or there is a loop of links.
    if not os.path.exists(path):  # noqa: PTH110 - see above
        raise UsageError(
            f"{path} does not exist; 'shardbench gate --propose {path} --judge RESULTS.jsonl' "
            "makes one from the results of 'shardbench compare ... --results RESULTS.jsonl'."
        )
    try:
        document = tomllib.loads(read_file(path).decode())
    except RecursionError:
        raise UsageError(f"{path} cannot be read: it is nested too deeply.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} cannot be read: it must be UTF-8 text.") from None
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}.") from None
    return _expectations(_Table(str(path), document, _FILE_KEYS))


class _Table:
    """A table of the file: each value is checked as it is asked for, unknown keys at once."""

    def __init__(self, where: str, values: Any, keys: tuple[str, ...] = ()) -> None:
        if not isinstance(values, dict):
            raise UsageError(f"{where} must be a table.")
        self.where = where
        self.values: dict[str, Any] = values
        for key in values if keys else ():
            if key not in keys:
                raise unknown(f"key in {where},", key, keys)

    def get(self, key: str, check: Callable[[Any], T], allowed: str, default: D) -> T | D:
        return self._checked(key, check, allowed) if key in self.values else default

    def table(self, key: str, keys: tuple[str, ...] = ()) -> "_Table":
        return _Table(f"{self.where}, {key}", self.values.get(key, {}), keys)

    def all(self, check: Callable[[Any], T], allowed: str) -> dict[str, T]:
        return {key: self._checked(key, check, allowed) for key in self.values}

    def _checked(self, key: str, check: Callable[[Any], T], allowed: str) -> T:
        value = self.values[key]
        try:
            return check(value)
        except ValueError:
            raise UsageError(
                f"{self.where}: {key} must be {allowed}, not {_toml(value)}."
            ) from None


def _expectations(table: _Table) -> Expectations:
    table.get("schema", _one_of((SCHEMA,)), f"{SCHEMA}, which this version reads", SCHEMA)
    made_with = table.table("made_with", _MADE_WITH_KEYS)
    found = {
        cell: _expectation(cell, _Table(f"{table.where}, cell '{cell}'", values, _CELL_KEYS))
        for cell, values in table.table("cell").values.items()
    }
    return Expectations(
        cells=found,
        ratio_slack=table.get("ratio_slack", _at_least_one, "a number from 1 on", RATIO_SLACK),
        quality_tolerance=table.get("quality_tolerance", _share, _SHARE, QUALITY_TOLERANCE),
        ignore=table.get("ignore", _aspects, _ASPECTS, ()),
        python=made_with.get("python", _text, "a text", ""),
        packages=made_with.table("packages").all(_text, "a text"),
    )


def _expectation(cell: str, table: _Table) -> Expectation:
    if not _CELL_ID.fullmatch(cell):
        raise UsageError(
            f"{table.where} is malformed; write family/variant@workload/topology:gpus."
        )
    found = Expectation(
        cell=cell,
        given=table.get("given", _name, "a text", ""),
        against=table.get("against", _name, "the name of a variant", ""),
        status=table.get("status", _one_of(STATUSES), _listed(STATUSES), "ok"),
        decision=table.get("decision", _one_of(DECISIONS), _listed(DECISIONS), None),
        fingerprint=table.get("fingerprint", _name, "a text", None),
        quality=table.table("quality").all(_number, "a finite number"),
        quality_tolerance=table.get("quality_tolerance", _share, _SHARE, None),
        counters=table.table("counters").all(_count, "a whole number from 0 on"),
        ratio=table.get("ratio", _interval, "[lowest, highest], two numbers from 0 on", None),
        ignore=table.get("ignore", _aspects, _ASPECTS, ()),
    )
    if found.status != "ok" and found.has_figures:
        raise UsageError(
            f"{table.where}: what is expected to be '{found.status}' can have no figures; "
            "status must be ok, or the figures must go."
        )
    return found


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _one_of(allowed: tuple[T, ...]) -> Callable[[Any], T]:
    def check(value: Any) -> T:
        for each in allowed:
            if type(value) is type(each) and value == each:  # true is not 1 here
                return each
        raise ValueError

    return check


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    try:
        is_finite = math.isfinite(value)
    except OverflowError:  # a whole number with hundreds of digits
        is_finite = False
    if not is_finite:
        raise ValueError
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError
    return value


def _at_least_one(value: Any) -> float:
    if _number(value) < 1:
        raise ValueError
    return float(value)


def _share(value: Any) -> float:
    if not 0 <= _number(value) < 1:
        raise ValueError
    return float(value)


def _interval(value: Any) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError
    low, high = map(_number, value)
    if not 0 <= low <= high or high == 0:
        raise ValueError
    return float(low), float(high)


def _aspects(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    for item in value:
        kind, dot, name = _text(item).partition(".")
        if item not in _WHOLE_ASPECTS and not (kind in FIGURES and dot and name):
            raise ValueError
    return tuple(value)


def to_toml(expectations: Expectations) -> str:
    """Write an expectations file: the cells by id, with a blank line between, one figure a line.

    The order depends on nothing but the names, so that two files differ where what they expect
    does.
    """
    lines = [
        _HEADING,
        f"schema = {SCHEMA}",
        f"ratio_slack = {_toml(expectations.ratio_slack)}",
        f"quality_tolerance = {_toml(expectations.quality_tolerance)}",
        *([f"ignore = {_toml(expectations.ignore)}"] if expectations.ignore else []),
        "",
        "[made_with]",
        f"python = {_toml(expectations.python)}",
        *_figures("packages", expectations.packages),
    ]
    for cell in sorted(expectations.cells, key=_order):
        lines += ["", f"[cell.{_quoted(cell)}]", *_cell_lines(expectations.cells[cell])]
    return "\n".join(lines) + "\n"


def _order(cell: str) -> tuple[str, ...]:
    """Order by family, problem and variant: what is compared with each other stands together."""
    planner, _, problem = cell.partition("@")
    family, _, variant = planner.partition("/")
    return family, problem, variant


def _cell_lines(expected: Expectation) -> Iterator[str]:
    for key in _CELL_KEYS:
        value = getattr(expected, key)
        if key in FIGURES:
            yield from _figures(key, value)
        elif value not in (None, "", ()) and (key, value) != ("status", "ok"):
            yield f"{key} = {_toml(value)}"


def _figures(key: str, figures: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(figures):
        written = name if _BARE_KEY.fullmatch(name) else _quoted(name)
        yield f"{key}.{written} = {_toml(figures[name])}"


def _quoted(text: str) -> str:
    """Write a string; TOML's escapes are JSON's, but for DEL, which JSON leaves as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, int) and abs(value) >= 10**100:
        return "a number of hundreds of digits"
    return repr(value) if isinstance(value, int | float) else str(value)
