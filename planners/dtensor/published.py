"""The published ladder: how torch's dispatch stopped flattening and began to remember."""

from typing import TYPE_CHECKING

from harness.contract import Claim, Prepared
from planners.dtensor.family import FAMILY

if TYPE_CHECKING:
    from planners.dtensor.decision import Decision
    from planners.dtensor.problem import DTensorProblem

_LRU_CACHED = "pytorch/pytorch#107305"


@FAMILY.variant("before", reference=True, source=_LRU_CACHED)
def before(problem: "DTensorProblem") -> "Prepared[Decision]":
    """Eleven pytree passes an op, views that always miss, as before torch 2.1"""
    from planners.dtensor.dispatch.historical import FirstCache
    from planners.dtensor.problem import prepare

    return prepare(problem, FirstCache())


@FAMILY.variant(
    "after",
    same_as="before",
    source=_LRU_CACHED,
    claim=Claim(
        before=13.535,
        after=9.665,
        unit="ms",
        conditions="an MLP layer on GPUs, profiled; its aten.addmm went from 0.476 to 0.341 ms",
    ),
)
def after(problem: "DTensorProblem") -> "Prepared[Decision]":
    """Arguments flattened once, one lru_cache, a flag that says whether to redistribute"""
    from planners.dtensor.dispatch.historical import FlattenedOnce
    from planners.dtensor.problem import prepare

    return prepare(problem, FlattenedOnce())


@FAMILY.variant("no-pytree", same_as="after", source="pytorch/pytorch#110132")
def no_pytree(problem: "DTensorProblem") -> "Prepared[Decision]":
    """No pytree unless an op needs it, in Python, as up to torch 2.9"""
    from planners.dtensor.dispatch.historical import Unflattened
    from planners.dtensor.problem import prepare

    return prepare(problem, Unflattened())


@FAMILY.variant("upstream", same_as="no-pytree", source="torch 2.13.0, pytorch/pytorch#167051")
def upstream(problem: "DTensorProblem") -> "Prepared[Decision]":
    """Torch as installed, with dispatch and its cache in C++"""
    from planners.dtensor.dispatch.base import Dispatch
    from planners.dtensor.problem import prepare

    return prepare(problem, Dispatch())


@FAMILY.variant("uncached", same_as="upstream", source="torch 2.13.0")
def uncached(problem: "DTensorProblem") -> "Prepared[Decision]":
    """Torch as installed, its cache cleared before every op"""
    from planners.dtensor.dispatch.uncached import Uncached
    from planners.dtensor.problem import prepare

    return prepare(problem, Uncached())
