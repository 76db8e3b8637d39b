"""Plan AutoParallel's shardings faster, or capture its problem.

from shardbench import accelerate_autoparallel

with accelerate_autoparallel(), AutoParallel(model, input_fn, mesh) as parallel:
    placement = parallel.optimize_placement()
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import pulp
from autoparallel.optimize_sharding import ShardingOptimizer

from harness.contract import InfeasibleDecision, Names, ShardbenchError, one_line
from planners.acceleration import Acceleration
from planners.placement.drop_in.programme import ShardingProgramme, counted_variables
from planners.placement.files import contest_form
from planners.placement.problem import PlacementProblem, cost_of
from planners.placement.search.certified import certified

_SECONDS = 60.0
_LARGEST_GAP = 1e-6
_OPTIMAL = 1  # PuLP's status


class accelerate_autoparallel(Acceleration):  # noqa: N801 - a call
    """Solve AutoParallel's integer programme by shardbench, until `stop` or the end of the block.

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


def _set_objective(optimizer: Any, _: Callable[[], Any]) -> None:
    """Set AutoParallel's objective at once, not as a sum of one expression for each variable."""
    costs = {
        variable.var: variable.cost * copies
        for _, variable, copies in counted_variables(optimizer)
        if variable.cost
    }
    optimizer.prob += pulp.LpAffineExpression(costs)


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
