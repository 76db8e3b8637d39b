"""Check JSON and TOML values against declared types, with one-sentence errors."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import Meta

from harness.model.errors import UsageError, printable, unknown

T = TypeVar("T")

LEAST = 1e-100
"""Below it, and above 1 over it, quotients overflow and axes have no ticks."""

Name = Annotated[str, Meta(min_length=1)]
Number = Annotated[float, Meta(ge=-1 / LEAST, le=1 / LEAST)]
Amount = Annotated[float, Meta(ge=0, le=1 / LEAST)]
Count = Annotated[int, Meta(ge=0)]
Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]

_LONGEST = 200
_PLACE = re.compile(r" - at `\$\.?(?P<place>.*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>[^`]*)`$")


def checked(value: Any, kind: type[T], where: str) -> T:
    """Convert a value to the type `kind`. Raise UsageError that names `where` and the field."""
    try:
        return msgspec.convert(value, kind)
    except (ValueError, RecursionError) as error:
        found = _UNKNOWN.match(str(error))
        if found and msgspec.inspect.is_struct_type(kind):
            names = [known.encode_name for known in msgspec.structs.fields(kind)]
            raise UsageError(f"{where}: {unknown('key', found['field'], names)}") from None
        raise UsageError(f"{where}: {fault(error, kind)}.") from None


def fault(error: Exception, kind: Any) -> str:
    """Rewrite a conversion error of msgspec as one clause that starts with the wrong field."""
    text = printable(" ".join(str(error).rstrip(".").split()))
    found = _PLACE.search(text)
    if found:
        text = f"'{found['place']}': {text[: found.start()]}"
        listed = _listed(getattr(kind, "__annotations__", {}).get(found["place"]))
        if listed and " enum " in text:
            text += f"; known are: {', '.join(listed)}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _listed(kind: Any) -> list[str]:
    """Return the strings in a type's Literals."""
    return (
        [kind] if isinstance(kind, str) else [x for part in get_args(kind) for x in _listed(part)]
    )


def check_sizes(figures: Mapping[str, Any]) -> None:
    """Raise ValueError if a number other than 0 is too large or too small to calculate with."""
    for name, value in figures.items():
        if isinstance(value, int | float) and value and not LEAST <= abs(value) <= 1 / LEAST:
            raise ValueError(f"'{name}' must be 0 or from {LEAST:.0e} to {1 / LEAST:.0e} in size")
