"""Vectors that stand for one number in a formula, which then calculates for many at once."""

import math
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import override


class Diverged(Exception):
    """A formula asked a question that is true in some lanes only: those of the mask `true`."""

    def __init__(self, true: npt.NDArray[np.bool_]) -> None:
        super().__init__("The lanes have to go different ways.")
        self.true = true


class Lanes(np.ndarray[Any, np.dtype[Any]]):
    """An array of Python's own numbers, in the place of one number in a formula.

    Every lane gets the result that Python gets with its number alone, to the last bit, in exact
    integers and in floats. Where lanes would take different branches, Diverged is raised.
    """

    @classmethod
    def of(cls, numbers: Iterable[Any]) -> Self:
        """Return lanes with these numbers."""
        listed = list(numbers)
        lanes = np.empty(len(listed), object).view(cls)
        lanes[:] = listed
        return lanes

    @override
    def __bool__(self) -> bool:
        true = np.asarray(self, dtype=bool)
        if true.all():
            return True
        if not true.any():
            return False
        raise Diverged(true)

    def __ceil__(self) -> Any:
        return _ceil(self)

    def __round__(self, digits: int | None = None) -> Any:
        return _round(self) if digits is None else np.frompyfunc(round, 2, 1)(self, digits)

    @override
    def __float__(self) -> float:
        """Return NaN if any lane is NaN, else infinity: torchrec asks `math.isnan` and no more."""
        return math.nan if any(map(math.isnan, self)) else math.inf

    # NumPy's would change the formula's arguments; these return new lanes, as Python's numbers do.
    __iadd__: Any = np.ndarray.__add__
    __isub__: Any = np.ndarray.__sub__
    __imul__: Any = np.ndarray.__mul__
    __itruediv__: Any = np.ndarray.__truediv__


_ceil = np.frompyfunc(math.ceil, 1, 1)
_round = np.frompyfunc(round, 1, 1)
