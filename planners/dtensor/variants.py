"""The family's variants in the order of listing: published implementations, then our own.

A variant refers to its dispatch by module and class name: the modules import torch, which is slow,
and listing the variants must be quick.
"""

from typing import TYPE_CHECKING

from harness.contract import Claim, NotApplicable, Prepared
from planners.dtensor.family import FAMILY

if TYPE_CHECKING:
    from planners.dtensor.decision import Decision
    from planners.dtensor.problem import DTensorProblem

_LRU_CACHED = "pytorch/pytorch#107305"


@FAMILY.variant("before", reference=True, source=_LRU_CACHED)
def before(problem: "DTensorProblem") -> "Prepared[Decision]":
    """Eleven pytree passes an op, views that always miss, as before torch 2.1"""
    return problem.under("dispatch.historical:FirstCache")


@FAMILY.variant(
    "after",
    same_as="before",
    source=_LRU_CACHED,
    claim=Claim(
        before=13.535,
        after=9.665,
        unit="ms",
        conditions="one layer of an MLP on GPUs, from a profiler",
    ),
)
def after(problem: "DTensorProblem") -> "Prepared[Decision]":
    """Arguments flattened once, one lru_cache, a flag that says whether to redistribute"""
    return problem.under("dispatch.historical:FlattenedOnce")


@FAMILY.variant("no-pytree", same_as="after", source="pytorch/pytorch#110132")
def no_pytree(problem: "DTensorProblem") -> "Prepared[Decision]":
    """No pytree unless an op needs it, in Python, as up to torch 2.9"""
    return problem.under("dispatch.historical:Unflattened")


@FAMILY.variant("upstream", same_as="no-pytree", source="torch 2.13.0, pytorch/pytorch#167051")
def upstream(problem: "DTensorProblem") -> "Prepared[Decision]":
    """Torch as installed, with dispatch and its cache in C++"""
    return problem.under()


@FAMILY.variant("uncached", same_as="upstream", source="torch 2.13.0")
def uncached(problem: "DTensorProblem") -> "Prepared[Decision]":
    """Torch as installed, its cache cleared before every op"""
    return problem.under("search.dispatches:Uncached")


@FAMILY.variant("interned", same_as="upstream", source="shardbench")
def interned(problem: "DTensorProblem") -> "Prepared[Decision]":
    """A cache of recipes for ops, which recognises the inputs' specs by identity"""
    return problem.under("cache.interned:InternedDispatch")


@FAMILY.variant("local-step", same_as="upstream", source="shardbench")
def local_step(problem: "DTensorProblem") -> "Prepared[Decision]":
    """Steps of an optimizer and clipping on local tensors, without dispatch"""
    return problem.under(stepping="optimizer.stepping:on_local_tensors")


@FAMILY.variant("accelerated", same_as="upstream", source="shardbench")
def accelerated(problem: "DTensorProblem") -> "Prepared[Decision]":
    """All of `accelerate` and `accelerate_optimizer`, for training"""
    return problem.under("cache.interned:ShapeClass", "optimizer.stepping:with_everything")


@FAMILY.variant("plain-step", same_as="upstream", source="shardbench")
def plain_step(problem: "DTensorProblem") -> "Prepared[Decision]":
    """The limit: an optimizer that has only the local tensors, clipped on this rank"""
    if problem.program.optimizer is not None and problem.program.differentiates:
        raise NotApplicable("The gradients are made in each step.")
    return problem.under(stepping="optimizer.stepping:on_plain_tensors")


@FAMILY.variant("gather-each", same_as="upstream", source="pytorch/torchtitan#2494")
def gather_each(problem: "DTensorProblem") -> "Prepared[Decision]":
    """Muon with one gather of each matrix, which every rank orthogonalises"""
    return problem.under(stepping=_of_muon(problem, "optimizer.stepping:gather_each"))


@FAMILY.variant("owned", same_as="upstream", source="shardbench")
def owned(problem: "DTensorProblem") -> "Prepared[Decision]":
    """Muon with an owner for each matrix, and two all-to-alls for many matrices"""
    return problem.under(stepping=_of_muon(problem, "optimizer.stepping:on_local_tensors"))


def _of_muon(problem: "DTensorProblem", stepping: str) -> str:
    """Return a way to step Muon; raises NotApplicable for a program of another optimizer."""
    if not problem.program.is_muon:
        raise NotApplicable("The workload has no Muon.")
    return stepping


@FAMILY.variant("dijkstra", source="torch 2.13.0, pytorch/pytorch#169438")
def dijkstra(problem: "DTensorProblem") -> "Prepared[Decision]":
    """The search over strategies that torch ships and does not call"""
    return problem.under("search.dispatches:Dijkstra")


@FAMILY.variant("exact-miss", same_as="upstream", source="shardbench")
def exact_miss(problem: "DTensorProblem") -> "Prepared[Decision]":
    """A search by lower bounds that makes the exhaustive search's choice"""
    return problem.under("search.dispatches:ExactMiss")


@FAMILY.variant("shape-class", same_as="upstream", source="shardbench")
def shape_class(problem: "DTensorProblem") -> "Prepared[Decision]":
    """The interned cache, then a cache with keys that exclude irrelevant sizes"""
    return problem.under("cache.interned:ShapeClass")
