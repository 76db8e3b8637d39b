"""Variants: published methods, and ours. Modules are imported at first use."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.contract import Claim, InfeasibleDecision, NotApplicable, Prepared, ask_upstream
from planners.placement.family import FAMILY

if TYPE_CHECKING:
    from planners.placement.problem import PlacementProblem, Plan

_MOST_PAIRS_OF_PROGRAMMES = 500_000
_DRIVERS = Path(__file__).parent / "upstream"
_TOULBAR2, _PULP = "toulbar2-1.4.0.1", "pulp-3.3.0"
_PLAN = {"kind": "plan"}


@FAMILY.variant("descent", reference=True, source="Besag 1986, iterated conditional modes")
def descent(problem: "PlacementProblem") -> "Prepared[Plan]":
    """From the smallest states, each op in turn takes its cheapest state that fits, in Python"""
    return _descent(problem, is_reduced=False, is_compiled=False)


@FAMILY.variant("descent-compiled", same_as="descent", source="shardbench")
def descent_compiled(problem: "PlacementProblem") -> "Prepared[Plan]":
    """As descent, with compiled loops"""
    return _descent(problem, is_reduced=False, is_compiled=True)


@FAMILY.variant("reductions", source="shardbench")
def reductions(problem: "PlacementProblem") -> "Prepared[Plan]":
    """Exact reductions, then descent on the ops that are left, in Python"""
    return _descent(problem, is_reduced=True, is_compiled=False)


@FAMILY.variant("reductions-compiled", same_as="reductions", source="shardbench")
def reductions_compiled(problem: "PlacementProblem") -> "Prepared[Plan]":
    """As reductions, with compiled loops"""
    return _descent(problem, is_reduced=True, is_compiled=True)


def _descent(problem: "PlacementProblem", is_reduced: bool, is_compiled: bool) -> "Prepared[Plan]":
    return Prepared(partial(_module("published").by_descent, problem, is_reduced, is_compiled))


def _module(name: str) -> Any:
    """Import a module of the searches, after loading the machine code of all."""
    import_module("planners.placement.search.warm_up").warm_up()
    return import_module(f"planners.placement.search.{name}")


@FAMILY.variant(
    "trws",
    source="meta-pytorch/autoparallel#521",
    claim=Claim(15.851, 5.548, "s", "LLaMA-3 8B, the solver alone, CBC before"),
)
def trws(problem: "PlacementProblem") -> "Prepared[Plan]":
    """TRW-S without a price of memory, then descent; its plan may not fit"""
    return Prepared(partial(_module("published").by_messages, problem))


@FAMILY.variant(
    "lp",
    source="meta-pytorch/autoparallel#521",
    claim=Claim(15.851, 12.055, "s", "LLaMA-3 8B, the solver alone, CBC before and after"),
)
def lp(problem: "PlacementProblem") -> "Prepared[Plan]":
    """The linear relaxation of ilp; each op takes the state with the largest fraction"""
    _check_size(problem)
    return Prepared(partial(_module("published").by_rounding, problem))


@FAMILY.variant("ilp", source="shardbench")
def ilp(problem: "PlacementProblem") -> "Prepared[Plan]":
    """The integer programme of the whole problem, built as arrays and solved by HiGHS"""
    _check_size(problem)
    return Prepared(partial(_module("certified").unreduced, problem))


def _check_size(problem: "PlacementProblem") -> None:
    if len(problem.pairs) > _MOST_PAIRS_OF_PROGRAMMES:
        raise NotApplicable(f"It takes problems with at most {_MOST_PAIRS_OF_PROGRAMMES:,} pairs.")


@FAMILY.variant("forests", source="shardbench")
def forests(problem: "PlacementProblem") -> "Prepared[Plan]":
    """Reductions, prices of memory by TRW-S, and a search by forests"""
    return Prepared(partial(_module("certified").by_forests, problem))


@FAMILY.variant("certified", source="shardbench")
def certified(problem: "PlacementProblem") -> "Prepared[Plan]":
    """Reductions, then the integer programme or the search by forests, with a proven bound"""
    return Prepared(partial(_module("certified").certified, problem))


@FAMILY.variant("toulbar2", source="toulbar2 1.4.0", upstream=_TOULBAR2)
def toulbar2(problem: "PlacementProblem") -> "Prepared[Plan]":
    """toulbar2 1.4.0, the kind of engine that won the contest, in a child process"""
    _check_size(problem)
    return ask_upstream(problem, _TOULBAR2, _DRIVERS / "toulbar2.py", _PLAN, _translated)


@FAMILY.variant("ilp-cbc", source="meta-pytorch/autoparallel, optimize_sharding.py", upstream=_PULP)
def ilp_cbc(problem: "PlacementProblem") -> "Prepared[Plan]":
    """AutoParallel's integer programme, built in PuLP and solved by CBC, in a child process"""
    _check_size(problem)
    return ask_upstream(problem, _PULP, _DRIVERS / "cbc.py", _PLAN, _translated)


def _translated(
    problem: "PlacementProblem",
) -> tuple[Mapping[str, Any], Callable[[Mapping[str, Any]], "Plan"]]:
    """Return the request for a problem, and the reader of its answer."""
    import numpy as np

    from planners.placement.files import rows_of
    from planners.placement.problem import Plan
    from planners.placement.search.graph import graph_of

    graph = graph_of(problem)
    states, usage, block = graph.bytes_of_states()
    node = graph.owner[block]
    state = states - graph.first[node]
    moments = []
    for moment, capacity in enumerate(graph.capacity.tolist()):
        at = np.flatnonzero(((graph.begin <= moment) & (moment < graph.end))[block])
        columns = (node[at], state[at], usage[at])
        moments.append((capacity, np.stack(columns, axis=1).tolist()))
    request = {
        "costs": rows_of(graph.cost, graph.first),
        "edges": np.stack([graph.tail, graph.head], axis=1).tolist(),
        "pairs": rows_of(graph.pairs, graph.offset),
        "moments": moments,
        "seconds": problem.seconds,
    }

    def read(answer: Mapping[str, Any]) -> "Plan":
        if answer["states"] is None:
            raise InfeasibleDecision("No plan was found in time.")
        return Plan(np.array(answer["states"], dtype=np.int64))

    return request, read
