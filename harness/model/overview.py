"""The goals and overview rows that a family declares for reports."""

from typing import Literal

from msgspec import Struct

from harness.model.declared import Name, Number

Measure = Literal["times faster", "seconds", "peak memory", "quality"]


class Goal(Struct, frozen=True):
    """A target for a variant on a problem; `text` states the target in one clause.

    `measure` is one of:

    - `times faster`: the time of `against` is at least `limit` times the variant's time;
    - `seconds`: the median wall time is at most `limit` seconds;
    - `peak memory`: the variant's peak memory is at most `limit` times that of `against`;
    - `quality`: the quality named `quality` (lower is better) is at most `limit`. With `against`,
      it is at most `limit` times that variant's, or with "others" the best other variant's.

    Without `against`, time and memory are compared with the family's reference.
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
        """Return a goal to be `limit` times as fast as `against`; `what` describes the problem."""
        times = "twice" if limit == 2 else f"{limit:g} times"
        text = f"{what} at least {times} as fast"
        return cls(text, problem, variant, "times faster", limit, against)


class OverviewRow(Struct, frozen=True, omit_defaults=True):
    """A row for one system in a report's overview: the variants and problems that represent it.

    Attributes:
        system: the name of the row.
        problem: the problem on which the report compares `ours` with `today`.
        today: the variant that is the current release of the system, or stands for it.
        ours: the variant that makes the decision of `today` in less time.
        place: the sort key of rows and families, lowest first.
        published: the variant with the published speed-up. Its claim is combined with the claims of
            the steps before it.
        before: the variant to compare `published` with; empty means the family's reference.
        best: the variant with the best decision, for its gap to the bound; by default `ours`.
        counter: the counter of work that `today` repeats.
        rated: the variant with the decision that the release makes by default, to rate instead of
            the decision of `today`.
        rated_on: the problem for the counter and the gaps; empty means `problem`.
        today_is: what `today` is, e.g. "TorchRec as installed", or which release it stands for.
        next_step: how a user gets what `ours` gains, as one sentence.
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
    rated: str = ""
    rated_on: str = ""
    today_is: str = ""
    next_step: str = ""

    @property
    def problems(self) -> tuple[str, ...]:
        """`problem`, and `rated_on` if it is set."""
        return (self.problem, self.rated_on) if self.rated_on else (self.problem,)
