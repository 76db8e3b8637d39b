"""One thing that results say."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence that stands alone, its figures, and the family that it is about."""

    kind: str
    sentence: str
    detail: str = ""
    family: str = ""
