"""Types that captured files are declared with: their limits, and mirrors of torchrec's classes."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Annotated, Any, ClassVar, Self

from msgspec import Meta, Struct, structs

MOST_BYTES = 2**62
"""More than any memory; sums of a few of them still fit Python's and NumPy's integers."""
MOST_RANKS = 2**17
MOST_SECONDS = 10**9

Whole = Annotated[int, Meta(ge=0, le=2**40)]
Positive = Annotated[int, Meta(ge=1, le=2**40)]
Ranks = Annotated[int, Meta(ge=1, le=MOST_RANKS)]
Bytes = Annotated[int, Meta(ge=0, le=MOST_BYTES)]
BytesLeft = Annotated[int, Meta(ge=-MOST_BYTES, le=MOST_BYTES)]
"""Less than nothing where more is reserved than there is."""

# Whole numbers stay whole.
Number = Bytes | Annotated[float, Meta(ge=0, le=1e30)]
Estimate = BytesLeft | Annotated[float, Meta(ge=-1e30, le=1e30)]
# Whatever takes no time at all takes it at a bandwidth above this.
Bandwidth = Annotated[int, Meta(ge=1, le=MOST_BYTES)] | Annotated[float, Meta(ge=1e-9, le=1e30)]


def one_of(names: Iterable[str]) -> Meta:
    """Return the limits of a text that is one of these."""
    return Meta(pattern=rf"^({'|'.join(names)})\Z")


class Mirror(Struct, frozen=True):
    """Fields that a class of torchrec has, too; `kinds` names those that are enums or mirrors.

    Enums are written by their names.
    """

    original: ClassVar[Any]
    kinds: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def of(cls, held: Any) -> Self:
        """Return what is captured of an object of torchrec's."""
        said = {name: getattr(held, name) for name in cls.__struct_fields__}
        for name, kind in cls.kinds.items():
            if said[name] is not None:
                said[name] = said[name].name if issubclass(kind, Enum) else kind.of(said[name])
        return cls(**said)

    def make(self) -> Any:
        """Return a new object of torchrec's."""
        said = structs.asdict(self)
        for name, kind in self.kinds.items():
            if said[name] is not None:
                said[name] = kind[said[name]] if issubclass(kind, Enum) else said[name].make()
        return self.original(**said)
