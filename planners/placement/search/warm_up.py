"""Load the machine code of all searches, by planning a small problem."""

from functools import cache

from planners.placement.generated import generated
from planners.placement.search.certified import by_search
from planners.placement.search.graph import graph_of
from planners.placement.search.reduction import reduced
from planners.placement.workloads import BlocksParameters


@cache
def warm_up() -> None:
    """Plan a small problem once in this process."""
    by_search(reduced(graph_of(generated("small", BlocksParameters(blocks=2)))), 1.0)


if __name__ == "__main__":
    warm_up()
