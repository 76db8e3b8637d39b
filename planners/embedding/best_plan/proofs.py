"""The ladder of proofs: lower bounds on the ratings of all plans, each rung higher and slower.

1. `memory`: a linear programme, as if all ranks had one memory.
2. `costs`: it again, without options that no good plan contains, by fit and by reduced costs.
3. `patterns`: sets of whole shards that fit on a device, mixed by fractions.
4. `ranks`: whole shards on single ranks, by OR-tools' CP-SAT, if it is installed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planners.embedding.best_plan.candidates import Candidates
from planners.embedding.best_plan.linear import linear_bound
from planners.embedding.best_plan.packing import (
    WORK,
    Placed,
    is_installed,
    packed,
    worth_packing,
)
from planners.embedding.best_plan.patterns import pattern_bound, worth_patterns
from planners.embedding.best_plan.presolve import presolve_bound, presolved
from planners.embedding.search.outcome import Deadline
from planners.embedding.search.space import Ints

RUNGS = {
    "memory": "the linear programme",
    "costs": "reduced costs",
    "patterns": "patterns of devices",
    "ranks": "whole shards on single ranks",
}
"""The proofs, from the fastest to the strongest, with phrases for messages."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A proven lower bound, and what its proof says about the plans that are left."""

    rung: str
    milliseconds: float  # no plan rates lower; infinite if it is proven that no plan exists
    candidates: Candidates  # the options that a plan rating at most `at_most` can have
    relaxed: Ints  # the option of each table in the relaxed plan, -1 if unknown, shape (T,)
    plan: Placed | None = None  # a plan better than the known one that the proof came upon


def proofs(
    options: Candidates,
    at_least: float = 0.0,
    at_most: float = math.inf,
    deadline: Deadline | None = None,
    *,
    hint: Placed | None = None,
    rungs: Sequence[str] = (*RUNGS,),
    work: float = WORK,
) -> Iterator[Proof]:
    """Yield proofs, each at least as high as the one before, until one reaches `at_most`.

    `at_least` is a proven bound, and `at_most` the rating of a known plan, or infinity; `hint` is
    that plan. A rung that is not worth its time for the size of the problem is left out. `work` is
    the deterministic time of CP-SAT in seconds. The results are lower if the deadline passes.
    """
    until = deadline or Deadline()
    proof = Proof("", at_least, options, np.full(options.space.tables, -1))
    for rung in rungs:
        if proof.milliseconds >= at_most or (proof.rung and until.passed):
            return
        if rung == "memory":
            left = presolved(options)
            least, relaxed = linear_bound(left, until)
            proof = Proof(rung, max(least, at_least), left, relaxed)
        elif rung == "costs":
            least, left = presolve_bound(proof.candidates, proof.milliseconds, at_most, until)
            proof = replace(proof, rung=rung, milliseconds=least, candidates=left)
        elif rung == "patterns" and worth_patterns(proof.candidates):
            least = pattern_bound(proof.candidates, proof.milliseconds, at_most, until)
            proof = replace(proof, rung=rung, milliseconds=least)
        elif rung == "ranks" and worth_packing(proof.candidates) and is_installed():
            least, plan = packed(proof.candidates, proof.milliseconds, at_most, until, hint, work)
            proof = replace(proof, rung=rung, milliseconds=least, plan=plan)
        else:
            continue
        yield proof


def ladder(options: Candidates) -> list[Proof]:
    """Return all proofs that need no plan, the strongest last, with less work than a search's."""
    return list(proofs(options, work=WORK / 2))


def untried(options: Candidates) -> str | None:
    """Return why whole shards on single ranks cannot be tried, or None if they can, or need not."""
    if not worth_packing(options) or is_installed():
        return None
    return "whole shards on single ranks were not tried: OR-tools is not installed"
