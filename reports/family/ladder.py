"""The ladder, a sequence of variants (rungs) with published speed-ups: claimed, measured shares."""

from collections.abc import Iterable
from dataclasses import dataclass

from harness.model.cell import Cell, Claim
from reports.core.formatting import change, number
from reports.family.data import FamilyView


@dataclass(frozen=True, slots=True)
class Rung:
    """A rung: its claim, and its cell on `ladder_problem` if it was measured there.

    `share` is the published share of the ladder's starting cost, see `published_shares`.
    """

    variant: str
    source: str
    claim: Claim | None
    share: float | None
    cell: Cell | None

    @property
    def published(self) -> str:
        """The published figures as text, or the reason why there are none."""
        step = ""
        if self.claim:
            step = change(self.claim.before, self.claim.after, self.claim.unit)
        if self.share is not None:
            return f"{number(self.share)} ({step})" if step else "the published start"
        if step:
            return f"{step} published, on another problem"
        if self.source == "shardbench":
            return "ours, not upstream"
        return f"no figure published ({self.source})" if self.source else "no figure published"


def ladder(family: FamilyView) -> list[Rung]:
    """Return the rungs of a family; the reference has the share 1 if any rung has a claim."""
    last = {cell.variant: cell for cell in family.records}
    measured = family.variants_on(family.ladder_problem)
    shares = published_shares(last[rung].claim for rung in family.rungs)
    if any(shares) and shares[0] is None and family.rungs[0] == family.reference:
        shares[0] = 1.0
    return [
        Rung(name, last[name].source, last[name].claim, share, measured.get(name))
        for name, share in zip(family.rungs, shares, strict=True)
    ]


def published_shares(claims: Iterable[Claim | None]) -> list[float | None]:
    """Return the claimed share of the ladder's starting cost after each rung; None if unknown.

    A rung's share is the product of after / before over the claims so far, or only its own
    after / before if its `before` is the starting cost. A claim under other conditions than those
    of the first claim has no share.
    """
    first: Claim | None = None
    share = 1.0
    shares: list[float | None] = []
    for claim in claims:
        if claim is None or not (claim.before > 0 and claim.after > 0):
            shares.append(None)
            continue
        first = first or claim
        if claim.conditions != first.conditions:
            shares.append(None)
            continue
        starts = (claim.before, claim.unit) == (first.before, first.unit)
        share = (1.0 if starts else share) * claim.ratio
        shares.append(share)
    return shares
