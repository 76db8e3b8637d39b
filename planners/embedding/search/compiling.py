"""Decorators that compile functions of the search, and keep them for its sources as they are."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])

# Without this, numba counts references to arrays in the innermost loops, eight times the work. It
# also means that nothing compiled so can make an array.
_UNCOUNTED = {"_nrt": False}

# Numba finds what it has kept by the function's name and its own file. It does not see that what
# the function calls, or a constant, has changed in another file, so the name says that as well.
_SOURCES = sorted(Path(__file__).parent.rglob("*.py"))
_STATE = sha256(b"".join(each.read_bytes() for each in _SOURCES)).hexdigest()[:12]


def compiled(function: F) -> F:
    """Compile a function at its first call, and keep that on disk for the sources as they are."""
    function.__qualname__ += f"_{_STATE}"
    return cast(F, numba.njit(cache=True, **_UNCOUNTED)(function))


def inlined(function: F) -> F:
    """Compile a function as a part of each one that calls it; it may return a part of an array."""
    return cast(F, numba.njit(inline="always", **_UNCOUNTED)(function))
