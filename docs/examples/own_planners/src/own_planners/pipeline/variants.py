"""The variants: dynamic programming, the same decision by bisection, and equal counts."""

from bisect import bisect_right

from harness.contract import Prepared
from own_planners.pipeline.chain import Chain, Cut
from own_planners.pipeline.family import FAMILY


@FAMILY.variant("exact", reference=True, source="textbook")
def exact(chain: Chain) -> Prepared[Cut]:
    """Dynamic programming over all cuts: stages times layers squared"""
    return Prepared(run=lambda: cut(chain, least_by_programme(chain)))


@FAMILY.variant("bisected", same_as="exact", source="textbook")
def bisected(chain: Chain) -> Prepared[Cut]:
    """Bisection of what the slowest stage may cost, each time filling stage after stage"""
    return Prepared(run=lambda: cut(chain, least_by_bisection(chain)))


@FAMILY.variant("equal-counts", source="own-planners")
def equal_counts(chain: Chain) -> Prepared[Cut]:
    """As many layers in each stage as in any other, whatever they cost"""
    layers, stages = chain.layers, chain.stages
    return Prepared(
        run=lambda: Cut(tuple(layers * stage // stages for stage in range(1, stages + 1)))
    )


def least_by_programme(chain: Chain) -> int:
    """Return the least that the slowest stage can cost, from the best cuts into fewer stages."""
    ends = range(chain.layers + 1)
    least = [chain.cost(0, end) for end in ends]  # of the layers before `end`, in one stage
    for _ in range(1, chain.stages):
        least = [
            min(max(least[first], chain.cost(first, end)) for first in range(end + 1))
            for end in ends
        ]
    return least[-1]


def least_by_bisection(chain: Chain) -> int:
    """Return the least that the slowest stage can cost: the least limit that the stages keep."""
    low, high = chain.heaviest, chain.cost(0, chain.layers)
    while low < high:
        middle = (low + high) // 2
        first = 0
        for _ in range(chain.stages):
            first = end_of(chain, first, middle)
        if first == chain.layers:
            high = middle
        else:
            low = middle + 1
    return low


def cut(chain: Chain, limit: int) -> Cut:
    """Cut so that no stage costs more than `limit`, with as many layers as can be in the first."""
    ends = []
    end = 0
    for stages_left in reversed(range(chain.stages)):
        end = min(end_of(chain, end, limit), chain.layers - stages_left)
        ends.append(end)
    return Cut(tuple(ends))


def end_of(chain: Chain, first: int, limit: int) -> int:
    """Return where a stage must end that begins at `first` and may cost `limit`."""
    return bisect_right(chain.until, chain.until[first] + limit) - 1
