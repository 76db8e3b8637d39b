"""Rows of a report's overview: what was published of a system, today's release of it, and ours."""

from typing import Annotated

from msgspec import Meta, Struct

_Name = Annotated[str, Meta(min_length=1)]


class OverviewRow(Struct, frozen=True, omit_defaults=True):
    """One system in a report's overview, by the variants and problems that stand for it.

    Attributes:
        system: what the row is called.
        problem: where `ours` is compared with `today`.
        today: the variant that is today's release.
        ours: the variant that makes the decision of `today` in less time.
        place: orders the rows of all families, and the families; the least comes first.
        published: the variant whose claim is the published one, together with those of the steps
            before it.
        before: what `published` is set against here; the family's reference where it is empty.
        best: the variant with the best decision, whose gap is shown; `ours` where it is empty.
        counter: the work that `today` repeats.
        rated_on: the problem of the counter and of the gaps; `problem` where it is empty.
    """

    system: _Name
    problem: _Name
    today: _Name
    ours: _Name
    place: int = 0
    published: str = ""
    before: str = ""
    best: str = ""
    counter: str = ""
    rated_on: str = ""

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems that it is about."""
        return (self.problem, self.rated_on) if self.rated_on else (self.problem,)
