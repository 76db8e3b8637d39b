"""What a stored line must hold: the type of each field of a cell, in one table."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, get_args

SCHEMA = 1

# Raises ValueError, which says what the field of this name must be, unless the value is that.
_Check = Callable[[Any, str], None]

_LONGEST_QUOTE = 40
_LEAST = 1e-100  # beyond that, and 1 over it, quotients overflow and axes have no ticks


class OtherSchema(ValueError):
    """A line of another version of shardbench: nothing is wrong with it."""


def parse_record(line: bytes) -> dict[str, Any]:
    """Read a stored line.

    Raises:
        OtherSchema: the line is of another schema than the present one.
        ValueError: the line is no cell; the text says why, as what follows "the line ...".
    """
    try:
        record = json.loads(line, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise ValueError("is not JSON: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError("must be a JSON object")
    schema = record.get("schema")
    if schema != SCHEMA and isinstance(schema, int) and not isinstance(schema, bool):
        raise OtherSchema(f"has schema {_quoted(schema)}; this reads {SCHEMA}")
    for name, check in _NEEDED.items():
        check(record.get(name), name)
    for name, check in _FIELDS.items():
        if record.get(name) is not None:
            check(record[name], name)
    planner, _, problem = record["cell"].partition("@")
    if planner != f"{record['family']}/{record['variant']}" or not problem:
        raise ValueError("must have 'cell' as family/variant@problem")
    return record


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{_quoted(text)} is no finite number")
    return value


def _quoted(value: Any) -> str:
    text = str(value) if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."


def _wrong(name: str, what: str) -> ValueError:
    return ValueError(f"must have '{_quoted(name)}' as {what}")


def _number(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(name, "a number")
    if value and not _LEAST <= abs(value) <= 1 / _LEAST:
        raise _wrong(name, f"0 or a number from {_LEAST:.0e} to {1 / _LEAST:.0e} in size")


def _amount(value: Any, name: str) -> None:
    _number(value, name)
    if value < 0:
        raise _wrong(name, "a number of at least 0")


def _positive(value: Any, name: str) -> None:
    _number(value, name)
    if value <= 0:
        raise _wrong(name, "a number above 0")


def _text(value: Any, name: str) -> None:
    if not isinstance(value, str):
        raise _wrong(name, "a text")


def _name(value: Any, name: str) -> None:
    if not isinstance(value, str) or not value:
        raise _wrong(name, "a text")


def _number_or_text(value: Any, name: str) -> None:
    if not isinstance(value, str):
        _number(value, name)


def _fact(value: Any, name: str) -> None:
    """A number is shown as such, and must be one; anything else is shown as it is."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        _number(value, name)


def _number_or_none(value: Any, name: str) -> None:
    if value is not None:
        _number(value, name)


def _object(value: Any, name: str) -> None:
    if not isinstance(value, dict):
        raise _wrong(name, "an object")


def _object_of(check: _Check) -> _Check:
    """Return the check of an object whose values, unless they are null, pass a check."""

    def check_all(value: Any, name: str) -> None:
        _object(value, name)
        for key, item in value.items():
            if item is not None:
                check(item, f"{name}.{key}")

    return check_all


def _record_of(needed: Mapping[str, _Check], others: Mapping[str, _Check]) -> _Check:
    """Return the check of an object with these keys; the `others` may be null or absent."""

    def check_all(value: Any, name: str) -> None:
        _object(value, name)
        for key, check in needed.items():
            check(value.get(key), f"{name}.{key}")
        for key, check in others.items():
            if value.get(key) is not None:
                check(value[key], f"{name}.{key}")

    return check_all


def _list_of(check: _Check, what: str) -> _Check:
    def check_all(value: Any, name: str) -> None:
        if not isinstance(value, list):
            raise _wrong(name, f"a list of {what}")
        for item in value:
            try:
                check(item, name)
            except ValueError:
                raise _wrong(name, f"a list of {what}") from None

    return check_all


def _status(value: Any, name: str) -> None:
    from harness.storage.results import Status  # which reads with this

    allowed = get_args(Status)
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"has {name} '{_quoted(value)}'; allowed are: {', '.join(allowed)}")


def _measure(value: Any, name: str) -> None:
    from harness.goals import MEASURES  # goals are judged by results, which are read with this

    if not isinstance(value, str) or value not in MEASURES:
        raise _wrong(name, "a measure of goals")


def _ratio(value: Any, name: str) -> None:
    _RATIO(value, name)
    low, high = value.get("low"), value.get("high")
    if (low or 0) > value["value"] or (high is not None and high < value["value"]):
        raise _wrong(name, "a value within its interval")


def _ranks(value: Any, name: str) -> None:
    _RANKS(value, name)
    widths = {len(row) for row in value["rows"]} | {len(value["capacities"])}
    if widths != {len(value["columns"])} or value["bar"] not in value["columns"]:
        raise _wrong(name, "a table with as many figures in each row as it has columns")


_SUMMARY = _record_of({"median": _amount}, {"samples": _list_of(_amount, "numbers")})
# An interval is infinitely wide where there is a single pair, and JSON has no infinity.
_RATIO = _record_of({"value": _positive}, dict.fromkeys(("low", "high", "pairs"), _amount))
_QUALITY = _record_of(
    {"name": _text}, dict.fromkeys(("unit", "better", "meaning", "bounds"), _text)
)
_GOAL = _record_of(
    {"measure": _measure, "limit": _number} | dict.fromkeys(("text", "problem", "variant"), _text),
    dict.fromkeys(("against", "quality"), _text),
)
_RANKS = _record_of(
    {
        "columns": _list_of(_name, "names"),
        "rows": _list_of(_list_of(_number, "numbers"), "lists of numbers"),
        "capacities": _list_of(_number_or_none, "numbers or null"),
        "bar": _name,
    },
    {},
)
_ENVIRONMENT = _record_of(
    {}, {"packages": _object, "load": _number} | dict.fromkeys(("machine", "started"), _text)
)

_NEEDED: dict[str, _Check] = {
    **dict.fromkeys(("cell", "family", "variant", "workload", "topology", "reference"), _name),
    "status": _status,
    "gpus": _positive,
    "schema": _number,
}
# Any of these may be null or absent, as in a line that another program has written.
_FIELDS: dict[str, _Check] = {
    **dict.fromkeys(("against", "summary", "source", "same_as", "purpose", "reason"), _text),
    **dict.fromkeys(("verdict", "verdict_reason", "decision", "fingerprint"), _text),
    **dict.fromkeys(("size_name", "output"), _text),
    "size": _number,
    **dict.fromkeys(("projection_s", "peak_memory_bytes", "memory_before_bytes"), _amount),
    **dict.fromkeys(("wall_s", "cpu_s", "thread_cpu_s"), _SUMMARY),
    "ratio": _ratio,
    "ranks": _ranks,
    "claim": _record_of(
        {"before": _number, "after": _number}, {"unit": _text, "conditions": _text}
    ),
    "progress": _record_of(
        {"done": _amount}, {"total": _amount, "elapsed_s": _amount, "unit": _text}
    ),
    "quality": _object_of(_number),
    **dict.fromkeys(("counters", "phases"), _object_of(_amount)),
    "facts": _object_of(_fact),
    "counter_meanings": _object_of(_text),
    "counter_enough": _object_of(_number_or_text),
    "qualities": _list_of(_QUALITY, "objects with a 'name'"),
    "goals": _list_of(_GOAL, "goals, each with its measure"),
    "settings": _record_of({}, {"budget": _amount}),
    "environment": _ENVIRONMENT,
}
