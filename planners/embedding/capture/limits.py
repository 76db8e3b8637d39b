"""Allowed ranges of the numbers and texts in a captured file."""

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

MOST_BYTES = 2**62
"""More than any memory; sums of a few still fit the integers of NumPy."""
MOST_RANKS = 2**17
MOST_SECONDS = 10**9

Whole = Annotated[int, Meta(ge=0, le=2**40)]
Positive = Annotated[int, Meta(ge=1, le=2**40)]
Ranks = Annotated[int, Meta(ge=1, le=MOST_RANKS)]
Bytes = Annotated[int, Meta(ge=0, le=MOST_BYTES)]
BytesLeft = Annotated[int, Meta(ge=-MOST_BYTES, le=MOST_BYTES)]
"""Negative where more is reserved than there is."""

# Integers are not converted to floats.
Number = Bytes | Annotated[float, Meta(ge=0, le=1e30)]
Estimate = BytesLeft | Annotated[float, Meta(ge=-1e30, le=1e30)]
# A bandwidth of 0 would divide by zero.
Bandwidth = Annotated[int, Meta(ge=1, le=MOST_BYTES)] | Annotated[float, Meta(ge=1e-9, le=1e30)]


def one_of(names: Iterable[str]) -> Meta:
    """Return the msgspec constraint that a text equals one of the given names."""
    return Meta(pattern=rf"^({'|'.join(names)})\Z")
