"""Helpers for the tests of the family: searches, problems, and drawn conversions."""

from functools import cache
from math import prod
from typing import Any

from hypothesis import strategies as st

from harness.measuring.jobs import Checked, check
from harness.measuring.timing.turns import SystemClock
from harness.model.ids import ProblemId
from harness.topologies.lookup import find_topology
from planners.dimspec import FAMILY
from planners.dimspec.conversion.greedy import GreedySearch
from planners.dimspec.conversion.interned import CheapestSearch, InternedSearch
from planners.dimspec.conversion.steps import Conversion, Mesh, all_partitions
from planners.dimspec.problem import Query, Search

SEARCHES = {
    "eager-dict": lambda: GreedySearch("eager"),
    "lazy-dict": lambda: GreedySearch("lazy"),
    "shared-dict": lambda: GreedySearch("shared"),
    "path-cache": lambda: GreedySearch("shared", caches_paths=True),
    "interned": InternedSearch,
    "optimal": CheapestSearch,
}
GREEDY = tuple(SEARCHES)[:-1]


@cache
def problem_of(text: str) -> Any:
    """Build a problem from its id, e.g. `all-pairs[rank=2]/dgx_a100_80gb:8`."""
    problem = ProblemId.parse(text)
    return FAMILY.work.build(problem.workload, find_topology(problem.topology, problem.gpus))


def checked(variant: str, problem: str) -> Checked:
    """Return a variant's checked decision on a problem, with counters and quality."""
    return check(FAMILY, FAMILY.find(variant), problem_of(problem), SystemClock())


def converted(search: Search, query: Query) -> Conversion:
    """Return a search's answer to one query."""
    mesh, shape, source, target = query
    return search.convert(search.spec(mesh, shape, source), search.spec(mesh, shape, target))


_COSTS = st.one_of(st.just(1.0), st.sampled_from([0.0, 2e-5, 1e-9]), st.floats(0, 10))


@st.composite
def queries(draw: st.DrawFn, most_axes: int = 2, most_rank: int = 5) -> Query:
    """Draw a conversion; dimensions are in any order, most sizes are divisible by mesh axes."""
    mesh_shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=most_axes)))
    alpha, beta = (tuple(draw(_COSTS) for _ in mesh_shape) for _ in range(2))
    mesh, devices = Mesh(mesh_shape, alpha, beta), prod(mesh_shape)
    sizes = st.one_of(st.sampled_from([devices, 2 * devices, *mesh_shape]), st.integers(1, 40))
    shape = tuple(draw(st.lists(sizes, min_size=1, max_size=most_rank)))
    partitions = list(all_partitions(mesh, shape))
    source, target = (
        tuple(draw(st.permutations(draw(st.sampled_from(partitions))))) for _ in range(2)
    )
    return Query(mesh, shape, source, target)
