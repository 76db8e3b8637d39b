"""Statements compare two cells: published changes, headlines of reports, and goals."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from harness.model.declared import Number
from harness.model.ids import CellId, ProblemId

Use = Literal["claim", "headline", "goal"]

TIMES_FASTER, SECONDS, PEAK_MEMORY = "times faster", "seconds", "peak memory"

OTHERS = "others"
"""Named as `before`: the best of all other variants on the problem, for a quality."""


class Claim(Struct, frozen=True):
    """The published effect of an optimisation: a cost `before` and `after` it, in `unit`.

    `conditions` describes the published benchmark.
    """

    before: Number
    after: Number
    unit: str = ""
    conditions: str = ""

    @property
    def ratio(self) -> float:
        """The remaining share of the cost, after / before; lower is better."""
        return self.after / self.before


@dataclass(frozen=True, slots=True)
class Pair:
    """Two variants on one problem, `before` and `after` a change.

    A name with a slash, `library/commit`, is of another library than the statement's family.
    """

    problem: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Statement:
    """A comparison of variant `after` with variant `before` on a problem, declared by a family.

    A `claim` is a published change, and the cells that reproduce it. A `headline` compares today's
    release with our variant, and is named by its system, e.g. the library; a system may have one
    of times and one of a quality. A `goal` has a limit, and its name says it in one clause.

    Attributes:
        measure: `times faster` (the time of `before` / that of `after`), `seconds` (the median
            wall time of `after`), `peak memory` (of `after`), or the name of a quality.
        at_least: the lower limit of the measure.
        at_most: the upper limit. Of memory and qualities it is relative to `before`, if that is
            set.
        published: the published figures; by default those of the variant `after`.
        source: where they were published, `owner/repository#number`; by default as above.
        quick: a smaller pair for the same statement, which reports measure instead.
        counter: a count of work that explains the times, or that `before` repeats.
        counted: pairs with that counter, if others than those of the statement.
        claim: the name of a headline's main claim.
        before_is: what `before` is, e.g. "torch as installed".
        next_step: what a user calls to get the gain of a headline, as a short phrase.
        remark: further explanation, as whole sentences.
        family: the name of the family, which fills it in.
    """

    use: Use
    name: str
    problem: str
    before: str
    after: str
    measure: str = TIMES_FASTER
    at_least: float | None = None
    at_most: float | None = None
    published: Claim | None = None
    source: str = ""
    quick: Pair | None = None
    counter: str = ""
    counted: tuple[Pair, ...] = ()
    claim: str = ""
    before_is: str = ""
    next_step: str = ""
    remark: str = ""
    family: str = ""

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pair of the statement, and the quick one if it has one."""
        pair = Pair(self.problem, self.before, self.after)
        return (pair, self.quick) if self.quick else (pair,)

    @property
    def variants(self) -> Iterator[str]:
        """The named variants of the family."""
        for pair in (*self.pairs, *self.counted):
            yield from (n for n in (pair.before, pair.after) if n not in ("", OTHERS))

    def cell_id(self, problem: str, variant: str) -> CellId:
        """Return the id of a variant's cell; raises UsageError for a malformed problem."""
        library, slash, name = variant.partition("/")
        family, variant = (library, name) if slash else (self.family, variant)
        return CellId(family, variant, ProblemId.parse(problem))
