"""The decorator that compiles a loop with numba.

A compiled function calls only functions of its own file, because numba's cache on disk watches the
file of the function alone.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function at its first call, and keep the machine code on disk."""
    return cast(F, njit(cache=True)(function))
