"""A family's part of reports: its goals, and its rows of the overview."""

from typing import Literal

from msgspec import Struct

from harness.model.declared import Name, Number

Measure = Literal["times faster", "seconds", "peak memory", "quality"]


class Goal(Struct, frozen=True):
    """A target of a variant on a problem; `text` is one clause that states it.

    `measure` is one of:

    - `times faster`: the time of `against` is at least `limit` times the variant's;
    - `seconds`: the median wall time is at most `limit` seconds;
    - `peak memory`: the peak of the variant is at most `limit` times that of `against`;
    - `quality`: the quality named so, one that is better lower, is at most `limit`, or with
      `against` at most `limit` times that variant's, or the best of the `others`.

    Without `against`, time and memory are set against the family's reference.
    """

    text: str
    problem: str
    variant: str
    measure: Measure
    limit: Number
    against: str = ""
    quality: str = ""

    @classmethod
    def times_faster(
        cls, what: str, problem: str, variant: str, limit: float, against: str = ""
    ) -> "Goal":
        """Return the goal that `what`, a problem in words, takes a `limit`-th of the time."""
        times = "twice" if limit == 2 else f"{limit:g} times"
        text = f"{what} at least {times} as fast"
        return cls(text, problem, variant, "times faster", limit, against)


class OverviewRow(Struct, frozen=True, omit_defaults=True):
    """One system in a report's overview, by the variants and problems that stand for it.

    Attributes:
        system: the name of the row.
        problem: where `ours` is compared with `today`.
        today: the variant that is today's release.
        ours: the variant that makes the decision of `today` in less time.
        place: orders the rows of all families, and the families; the least comes first.
        published: the variant whose claim is the published one, together with those of the steps
            before it.
        before: what `published` is set against here; the family's reference where it is empty.
        best: the variant with the best decision, to show its gap; by default `ours`.
        counter: the work that `today` repeats.
        rated_on: the problem of the counter and of the gaps; `problem` where it is empty.
    """

    system: Name
    problem: Name
    today: Name
    ours: Name
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
