"""Past the published ladder: quicker on a hit, quicker on a miss, and fewer misses."""

from typing import TYPE_CHECKING

from harness.contract import Prepared
from planners.dtensor.family import FAMILY

if TYPE_CHECKING:
    from planners.dtensor.decision import Decision
    from planners.dtensor.problem import DTensorProblem


@FAMILY.variant("interned", same_as="upstream", source="shardbench")
def interned(problem: "DTensorProblem") -> "Prepared[Decision]":
    """Specs known by identity, and a compiled plan for each op on them"""
    from planners.dtensor.cache.interned import Interned
    from planners.dtensor.problem import prepare

    return prepare(problem, Interned())


@FAMILY.variant("dijkstra", source="torch 2.13.0, pytorch/pytorch#169438")
def dijkstra(problem: "DTensorProblem") -> "Prepared[Decision]":
    """The search over strategies that torch ships and does not call"""
    from planners.dtensor.problem import prepare
    from planners.dtensor.search.dispatches import Dijkstra

    return prepare(problem, Dijkstra())


@FAMILY.variant("exact-miss", same_as="upstream", source="shardbench")
def exact_miss(problem: "DTensorProblem") -> "Prepared[Decision]":
    """A search by lower bounds that chooses what the exhaustive search chooses"""
    from planners.dtensor.problem import prepare
    from planners.dtensor.search.dispatches import ExactMiss

    return prepare(problem, ExactMiss())


@FAMILY.variant("shape-class", same_as="upstream", source="shardbench")
def shape_class(problem: "DTensorProblem") -> "Prepared[Decision]":
    """Interned, and a cache behind it that leaves out the sizes that cannot matter"""
    from planners.dtensor.cache.shape_class import ShapeClass
    from planners.dtensor.problem import prepare

    return prepare(problem, ShapeClass())
