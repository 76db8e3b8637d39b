"""Records the inputs and the result of a running planner, as plain JSON types."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, cast

import msgspec
from torch import distributed, nn
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import PlannerError, ShardingOption, Topology
from torchrec.distributed.types import ModuleSharder, ShardingPlan

from harness.contract import Names, ShardbenchError
from planners.embedding.capture.file import CapturedProblem, captured_options, plain
from planners.embedding.capture.mirrors import device_runs
from planners.embedding.capture.planner import FoundPlan
from planners.embedding.tables.torchrec_objects import plan_fingerprint, sharded_modules
from planners.instruments import replaced

Method = Callable[..., Any]


@contextmanager
def recording(names: Names) -> Iterator[Callable[[], Mapping[str, Any] | None]]:
    """Record the last plan that an EmbeddingShardingPlanner makes inside the context.

    Yields a function that returns the record, or None in a process of a job whose rank 0 plans. It
    raises the error that kept the plan from being recorded, or ShardbenchError if there is none.
    """
    recorder = _Recorder(names)
    with replaced(
        (kind, "plan", recorder.recorded(kind.plan)) for kind in _derived(EmbeddingShardingPlanner)
    ):
        yield recorder.content


def _derived(base: Any) -> set[Any]:
    """Return the set of a class and all its subclasses."""
    return {base}.union(*map(_derived, base.__subclasses__()))


class _Recorder:
    """Records the last plan; errors in recording do not reach the planner."""

    _problem: CapturedProblem
    _places: dict[tuple[str, str], tuple[int, int]]  # see `captured_options`

    def __init__(self, names: Names) -> None:
        self._names = names
        self._planner: Any = None  # that planned last, and what
        self._module: Any = None
        self._is_planning = False
        self._error: Exception | None = None

    def content(self) -> Mapping[str, Any] | None:
        """Return the record, see `recording`."""
        if self._error is not None:
            raise self._error
        if self._planner is not None:
            return cast(Mapping[str, Any], msgspec.to_builtins(self._problem, enc_hook=plain))
        if distributed.is_initialized() and distributed.get_rank() > 0:
            return None
        raise ShardbenchError("no EmbeddingShardingPlanner planned inside.")

    def recorded(self, method: Method) -> Method:
        """Wrap `plan`; the plans that a planner makes while it plans are parts of its own."""

        @wraps(method)
        def plan(planner: EmbeddingShardingPlanner, *args: Any, **kwargs: Any) -> Any:
            if self._is_planning:
                return method(planner, *args, **kwargs)
            given = dict(zip(("module", "sharders"), args, strict=False)) | kwargs
            self._planner, self._module = planner, given.get("module")
            self._is_planning, self._error = True, None
            try:
                self._take(self._begun, given.get("sharders") or [])
                with replaced(self._listening()):
                    return self._told(method, planner, self._decided)(planner, *args, **kwargs)
            finally:
                self._is_planning = False

        return plan

    def _listening(self) -> Iterator[tuple[type, str, Method]]:
        """Yield methods of the planner's own components in a form that records their results."""
        if self._error is not None:
            return
        for component, method, step in (
            (self._planner._storage_reservation, "reserve", self._reserved),
            (self._planner._enumerator, "enumerate", self._enumerated),
        ):
            kind = type(component)
            yield kind, method, self._told(getattr(kind, method), component, step)

    def _told(self, method: Method, owner: object, step: Callable[[Any], None]) -> Method:
        """Wrap a method to pass what `owner` returns or raises for the whole module to a step."""

        @wraps(method)
        def told(called: object, *args: Any, **kwargs: Any) -> Any:
            is_whole = any(value is self._module for value in (*args, *kwargs.values()))
            take = self._take if called is owner and is_whole else lambda *_: None
            try:
                result = method(called, *args, **kwargs)
            except BaseException as error:
                take(step, error)
                raise
            take(step, result)
            return result

        return told

    def _take(self, step: Callable[[Any], None], given: Any) -> None:
        """Take a step of recording, unless an earlier one has failed."""
        if self._error is None:
            try:
                step(given)
            except Exception as error:  # a user's own class may raise anything
                self._error = error

    def _begun(self, sharders: list[ModuleSharder[nn.Module]]) -> None:
        modules = sharded_modules(self._module, sharders)
        self._places = {
            (module.path, config.name): (number, index)
            for number, module in enumerate(modules)
            for index, (config, _) in enumerate(module.tables)
        }
        self._problem = CapturedProblem.of(self._planner, modules, self._names)

    def _reserved(self, left: Topology | BaseException) -> None:
        """Record the memory that the storage reservation leaves, or the text of its error."""
        reservation = self._problem.reservation
        settings = reservation.settings
        if isinstance(left, Topology):
            reservation.left = device_runs(left)
        elif isinstance(left, PlannerError):
            # The errors of torchrec's own reservations contain no names.
            is_private = self._names.hashed and settings is None
            first_line = str(left).strip().partition("\n")[0]
            reservation.refused = "" if is_private else first_line[:500]
        # The size of the modules that are not sharded; the file does not have these.
        dense = getattr(self._planner._storage_reservation, "_dense_storage", None)
        if dense is not None and settings is not None and "dense_tensor_estimate" in settings:
            settings["dense_tensor_estimate"] = max(int(dense.hbm), int(dense.ddr))

    def _enumerated(self, options: list[ShardingOption] | BaseException) -> None:
        """Record the options of all tables, before proposers and partitioners change them."""
        if isinstance(options, list):
            problem = self._problem
            problem.options, problem.estimates = captured_options(options, self._places)

    def _decided(self, plan: ShardingPlan | BaseException) -> None:
        """Record the plan, if the planner keeps it where torchrec's does, or the error."""
        if isinstance(plan, BaseException):
            kind = type(plan)
            known = kind.__module__.startswith(("torchrec.", "builtins"))
            is_private = self._names.hashed and not known
            self._problem.found = FoundPlan(
                error="an error of one's own" if is_private else kind.__name__
            )
            return
        options = self._planner._best_plan or []
        if not self._problem.options and not plan.plan:
            raise ShardbenchError("there was no table to place.")
        ranks = {(o.path, o.name): [shard.rank for shard in o.shards] for o in options}
        if ranks and ranks == {
            (path, name): table.ranks
            for path, tables in plan.plan.items()
            for name, table in cast(Any, tables).items()
        }:
            fqns = [self._problem.fqn(*self._places[place]) for place in ranks]
            self._problem.found = FoundPlan(fingerprint=plan_fingerprint(options, fqns))
