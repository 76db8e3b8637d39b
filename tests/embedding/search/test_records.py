"""Compiled code reads the arrays of NamedTuples where they are, and none of another type."""

from typing import NamedTuple

import numba
import numpy as np
import pytest

from planners.embedding.search.compiling import kernel, subroutine
from planners.embedding.search.space import Floats, Ints


class Inner(NamedTuple):
    values: Floats
    factor: int


class Outer(NamedTuple):
    order: Ints
    inner: Inner


def raise_at(inner: Inner, index: int) -> float:
    inner.values[index] *= inner.factor
    return float(inner.values[index])


def total(outer: Outer) -> float:
    found = 0.0
    for index in outer.order:
        found += raised(outer.inner, index)
    return found


raised = subroutine(raise_at)


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return kernel(total)


def test_nested_records(compiled):
    values = np.array([1.0, 2.0, 3.0])
    assert compiled(Outer(np.array([2, 0, 2]), Inner(values, 10))) == 30 + 10 + 300
    assert values.tolist() == [10.0, 2.0, 300.0]


@pytest.mark.parametrize(
    "values", [np.arange(6.0)[::2], np.arange(3), np.arange(3, dtype=np.float32)]
)
def test_other_arrays_are_refused(compiled, values):
    with pytest.raises(numba.TypingError, match="Cannot determine Numba type"):
        compiled(Outer(np.arange(3), Inner(values, 1)))
