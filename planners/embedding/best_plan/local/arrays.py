"""Compiled operations on arrays for the local search."""

from typing import Any

import numpy.typing as npt

from planners.embedding.search.compiling import subroutine
from planners.embedding.search.space import Floats, Ints


@subroutine
def sum_of(values: Floats) -> float:
    """Return the sum, taken from the first to the last."""
    total = 0.0
    for value in values:
        total += value
    return total


@subroutine
def copy(target: npt.NDArray[Any], source: npt.NDArray[Any]) -> None:
    """Copy as much as both have room for."""
    for index in range(min(len(target), len(source))):
        target[index] = source[index]


@subroutine
def copy_rows(target: Ints, source: Ints) -> None:
    """Copy row after row, as much of each as both have room for."""
    for row in range(len(source)):
        copy(target[row], source[row])


@subroutine
def where_largest(values: Floats) -> int:
    """Return where the largest value is, the first of equal ones."""
    largest = 0
    for index in range(len(values)):
        if values[index] > values[largest]:
            largest = index
    return largest
