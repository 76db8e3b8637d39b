"""Numbers in the lanes of a vector, which formulas for one number calculate with all at once."""

import math
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import override


class Diverged(Exception):
    """A formula asked something that is true in some lanes alone, those that `true` says."""

    def __init__(self, true: npt.NDArray[np.bool_]) -> None:
        super().__init__("The lanes have to go different ways.")
        self.true = true


class Lanes(np.ndarray[Any, np.dtype[Any]]):
    """An array of Python's own numbers, which takes the place of one number in a formula.

    Every lane comes to what Python comes to with its number alone, to the last bit, in exact
    integers and in floats. Where the lanes would go different ways, Diverged is raised.
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
        """Return not-a-number where that is in a lane; for anything but that question, infinity."""
        return math.nan if any(map(math.isnan, self)) else math.inf

    # In place they would change what the formula was given.

    @override
    def __iadd__(self, other: Any) -> Any:
        return self + other

    @override
    def __isub__(self, other: Any) -> Any:
        return self - other

    @override
    def __imul__(self, other: Any) -> Any:
        return self * other

    @override
    def __itruediv__(self, other: Any) -> Any:
        return self / other


_ceil = np.frompyfunc(math.ceil, 1, 1)
_round = np.frompyfunc(round, 1, 1)
