"""Plan AutoParallel's shardings faster, or capture its problem.

from shardbench import accelerate_autoparallel

with accelerate_autoparallel(), AutoParallel(model, input_fn, mesh) as parallel:
    placement = parallel.optimize_placement()
"""

import gc
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from itertools import islice
from typing import Any
from unittest.mock import patch

import pulp
from autoparallel import optimize_sharding
from autoparallel.optimize_sharding import ShardingOptimizer
from torch.distributed.tensor._ops import utils as torch_strategies

from harness.contract import InfeasibleDecision, Names, ShardbenchError, one_line
from planners.acceleration import Acceleration
from planners.placement.drop_in.programme import ShardingProgramme
from planners.placement.files import contest_form
from planners.placement.problem import PlacementProblem, cost_of
from planners.placement.search.certified import certified

_SECONDS = 60.0
_LARGEST_GAP = 1e-6
_OPTIMAL = 1  # PuLP's status
_SAMPLED = 101  # every so many variables

# Functions without side effects that a construction calls with the same arguments again and again.
_PURE = (
    (torch_strategies, "redistribute_cost"),
    (optimize_sharding, "estimate_strategy_comms_cost"),
    (optimize_sharding, "all_input_nodes"),
)


class accelerate_autoparallel(Acceleration):  # noqa: N801 - a call
    """Solve AutoParallel's integer programme by shardbench, until `stop` or the end of the block.

    An AutoParallel that is entered inside is also constructed faster, with the same programme.
    The solution has the objective that AutoParallel's own solver has, to one in a million. It is
    put into AutoParallel's variables, which check it against all constraints. AutoParallel's own
    solver runs where ours has no proven optimum in a minute, or a constraint has an unknown form;
    `by_upstream` has the reasons. Raises UsageError if it is accelerated already.
    """

    def __init__(self) -> None:
        self.solved = 0
        self.by_upstream = Counter[str]()
        super().__init__("AutoParallel is", self._install)

    def _install(self) -> Callable[[], None]:
        with ExitStack() as replaced:
            replaced.callback(_replacing("__init__", _construct))
            replaced.callback(_replacing("add_inf_cost_constraint", _forbid))
            replaced.callback(_replacing("_set_objective", _set_objective))
            replaced.callback(_replacing("_solve", self._run))
            return replaced.pop_all().close

    def _run(self, optimizer: Any, call: Callable[[], Any]) -> Any:
        # AutoParallel adds its last constraints before it calls PuLP.
        upstream = optimizer.prob.solve
        optimizer.prob.solve = lambda solver: self._solve(optimizer, partial(upstream, solver))
        try:
            return call()
        finally:
            del optimizer.prob.solve

    def _solve(self, optimizer: Any, upstream: Callable[[], int]) -> int:
        try:
            programme = ShardingProgramme(optimizer)
            problem = programme.problem().limited(_SECONDS)
            plan = certified(problem)
            if cost_of(problem, plan.choice) > plan.bound * (1 + _LARGEST_GAP):
                raise InfeasibleDecision("No plan was proven to be the best in time.")
            programme.set_values(plan.choice)
            wrong = [name for name, c in optimizer.prob.constraints.items() if not c.valid(1e-6)]
            if wrong:
                raise InfeasibleDecision(f"The plan violates {wrong[0].rpartition('_')[0]}.")
        except Exception as error:  # of an unknown release, too
            is_sentence = isinstance(error, ShardbenchError)
            self.by_upstream[str(error) if is_sentence else one_line(error)] += 1
            return upstream()
        self.solved += 1
        optimizer.prob.status = optimizer.prob.sol_status = _OPTIMAL
        return _OPTIMAL


def _construct(_: Any, call: Callable[[], Any]) -> Any:
    """Construct an optimizer; compute functions without side effects once for equal arguments."""
    with ExitStack() as changed:
        for module, name in _PURE:
            if function := getattr(module, name, None):
                changed.enter_context(patch.object(module, name, _cached(function)))
        if gc.isenabled():
            changed.callback(gc.enable)
            gc.disable()  # ever more objects, and no garbage
        return call()


def _cached(function: Callable[..., Any]) -> Callable[..., Any]:
    known = cache(function)

    def cached(*arguments: Any, **named: Any) -> Any:
        try:
            return known(*arguments, **named)
        except TypeError:  # a size that is not known yet has no hash
            return function(*arguments, **named)

    return cached


def _forbid(optimizer: Any, call: Callable[[], Any]) -> None:
    """Forbid infinite costs by bounds; AutoParallel then finds none, and adds no constraints."""
    for decision in optimizer.decision_vars.values():
        if not math.isfinite(decision.cost):
            decision.cost = 10000.0  # as AutoParallel does
            decision.var.upBound = 0
    call()


def _set_objective(optimizer: Any, call: Callable[[], Any]) -> None:
    """Set AutoParallel's objective at once, not as a sum of one expression for each variable.

    AutoParallel sets it itself if its objective of a sample of the variables is another one.
    """
    decisions = optimizer.decision_vars
    optimizer.decision_vars = dict(islice(decisions.items(), 0, None, _SAMPLED))
    try:
        call()
        is_known = dict.__eq__(optimizer.prob.objective, _objective(optimizer))
    finally:
        optimizer.decision_vars = decisions
    if is_known:
        optimizer.prob.setObjective(_objective(optimizer))
    else:
        call()


def _objective(optimizer: Any) -> pulp.LpAffineExpression:
    linked = optimizer._root_to_linked
    return pulp.LpAffineExpression(
        {
            decision.var: decision.cost * (1 + len(linked.get(key, ())))
            for key, decision in optimizer.decision_vars.items()
            if decision.cost
        }
    )


def _replacing(name: str, run: Callable[[Any, Callable[[], Any]], Any]) -> Callable[[], None]:
    """Call `run` with the optimizer and a method of AutoParallel's; return what undoes that."""
    upstream, is_on = getattr(ShardingOptimizer, name), True

    def replacement(optimizer: Any, *arguments: Any, **named: Any) -> Any:
        call = partial(upstream, optimizer, *arguments, **named)
        return run(optimizer, call) if is_on else call()

    def end() -> None:
        nonlocal is_on
        is_on = False
        if getattr(ShardingOptimizer, name) is replacement:
            setattr(ShardingOptimizer, name, upstream)

    setattr(ShardingOptimizer, name, replacement)
    return end


@contextmanager
def capturing(_: Names) -> Iterator[Callable[[], Mapping[str, Any]]]:
    """Record the last programme that AutoParallel solves in the `with` block."""
    problems: list[PlacementProblem] = []

    def run(optimizer: Any, call: Callable[[], Any]) -> Any:
        try:
            return call()
        finally:
            with suppress(Exception):  # a constraint of an unknown form
                problems[:] = [ShardingProgramme(optimizer).problem()]

    def content() -> Mapping[str, Any]:
        if not problems:
            raise ShardbenchError("AutoParallel solved no programme of a known form inside.")
        return contest_form(problems[0])

    end = _replacing("_solve", run)
    try:
        yield content
    finally:
        end()
