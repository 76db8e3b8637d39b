"""Records the inputs and the plan of a running planner, as plain JSON types."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from itertools import chain, starmap
from numbers import Integral, Real
from typing import Any, cast

import msgspec
from torch import nn
from torchrec.distributed.planner.planners import EmbeddingPlannerBase, EmbeddingShardingPlanner
from torchrec.distributed.planner.types import (
    Enumerator,
    PlannerError,
    ShardingOption,
    StorageReservation,
    Topology,
)
from torchrec.distributed.types import ModuleSharder, ShardingPlan

from harness.contract import Names, ShardbenchError
from planners.embedding.capture.file import CapturedProblem
from planners.embedding.capture.mirrors import CapturedTopology, captured_constraints, device_runs
from planners.embedding.capture.modules import CapturedModule, CapturedSharder, sharded_modules
from planners.embedding.capture.options import captured_options
from planners.embedding.capture.planner import CapturedPlanner, CapturedReservation, FoundPlan
from planners.embedding.tables.torchrec_objects import plan_fingerprint
from planners.instruments import replaced

Call = Callable[[], Any]
Sharders = list[ModuleSharder[nn.Module]]


@contextmanager
def recording(names: Names) -> Iterator[Callable[[], Mapping[str, Any] | None]]:
    """Record the last plan that an EmbeddingShardingPlanner makes inside the context.

    Yields a function that returns the record, or None if only another process planned.
    """
    recorder = _PlanRecorder(names)
    listened = (
        (EmbeddingPlannerBase, "collective_plan", recorder.on_collective_plan),
        (EmbeddingShardingPlanner, "plan", recorder.on_plan),
        (Enumerator, "enumerate", recorder.on_enumerate),
        (StorageReservation, "reserve", recorder.on_reserve),
    )
    with replaced(chain.from_iterable(starmap(_listening, listened))):
        yield recorder.content


def inputs_of(
    planner: EmbeddingShardingPlanner, module: nn.Module, sharders: Sharders
) -> CapturedProblem:
    """Return the inputs of a planner, without options, estimates and a plan.

    Raises ShardbenchError if there is no table, or if a module or a sharder cannot be captured.
    """
    return _RecordedPlan(Names(), planner, module, sharders).problem


def _listening(
    base: type, method: str, listener: Callable[..., Any]
) -> Iterator[tuple[type, str, Callable[..., Any]]]:
    """Yield replacements of a method, in a class and its subclasses, that call `listener`.

    The listener's first argument is a function that makes the original call. In nested calls of a
    thread, such as through `super()`, only the outermost call reaches the listener.
    """
    inside = threading.local()

    def replacement(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call(owner: Any, *args: Any, **kwargs: Any) -> Any:
            make = partial(original, owner, *args, **kwargs)
            if getattr(inside, "a_call", False):
                return make()
            inside.a_call = True
            try:
                return listener(make, owner, *args, **kwargs)
            finally:
                inside.a_call = False

        return call

    for kind in _derived(base):
        original = vars(kind).get(method)
        if callable(original) and not getattr(original, "__isabstractmethod__", False):
            yield kind, method, replacement(original)


def _derived(base: type) -> set[type]:
    """Return the set of a class and all its subclasses."""
    children: list[type] = base.__subclasses__()
    return {base}.union(*map(_derived, children))


class _PlanRecorder:
    """Records the last plan; errors of the recording do not reach the planner."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._is_elsewhere = False
        self._error: ShardbenchError | None = None
        self._plan: _RecordedPlan | None = None

    def content(self) -> Mapping[str, Any] | None:
        """Return the record, or None if only another process planned.

        Raises ShardbenchError if nothing was planned, or if the plan could not be recorded.
        """
        if self._error is not None:
            raise self._error
        if self._plan is not None:
            return cast(Mapping[str, Any], msgspec.to_builtins(self._plan.problem, enc_hook=plain))
        if self._is_elsewhere:
            return None
        raise ShardbenchError("no EmbeddingShardingPlanner planned inside.")

    def on_collective_plan(self, make: Call, *_: Any, **__: Any) -> Any:
        """Run `collective_plan`, which makes rank 0 plan, possibly in another process."""
        self._is_elsewhere = True  # unless `on_plan` follows in this process
        return make()

    def on_plan(
        self,
        make: Call,
        planner: EmbeddingShardingPlanner,
        module: nn.Module,
        sharders: Sharders | None = None,
        *_: Any,
        **__: Any,
    ) -> Any:
        """Run `plan` and record it; the record of an earlier plan is dropped."""
        self._error, self._plan = None, None
        with self._guarded():
            self._plan = _RecordedPlan(self._names, planner, module, sharders or [])
        try:
            result = make()
        except BaseException as error:
            self._record(module, _RecordedPlan.failed, error)
            raise
        self._record(module, _RecordedPlan.found, result)
        return result

    def on_enumerate(
        self, make: Call, enumerator: Enumerator, module: nn.Module, *_: Any, **__: Any
    ) -> Any:
        """Run an enumerator's `enumerate`, and record the options if it is the planner's own."""
        options = make()
        if self._plan is not None and enumerator is self._plan.planner._enumerator:
            self._record(module, _RecordedPlan.enumerated, options)
        return options

    def on_reserve(self, make: Call, _: Any, *given: Any, **named: Any) -> Any:
        """Run a storage reservation's `reserve`, and record the memory that it leaves."""
        module = named["module"] if "module" in named else given[2]
        try:
            left = make()
        except PlannerError as error:
            self._record(module, _RecordedPlan.reserved, None, str(error))
            raise
        self._record(module, _RecordedPlan.reserved, left)
        return left

    def _record(self, module: nn.Module, add: Callable[..., None], *found: Any) -> None:
        if self._plan is not None and self._plan.module is module:
            with self._guarded():
                add(self._plan, *found)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Store an error of the recording for `content`, and stop recording this plan."""
        try:
            yield
        except ShardbenchError as error:
            self._error, self._plan = error, None
        except Exception as error:  # a user's own class may raise anything
            text = f"it cannot be recorded ({type(error).__name__}: {error})."
            self._error, self._plan = ShardbenchError(text), None


class _RecordedPlan:
    """The record of one call of `plan`; `problem` is the content of the captured file."""

    def __init__(
        self, names: Names, planner: EmbeddingShardingPlanner, module: nn.Module, sharders: Sharders
    ) -> None:
        self.planner = planner
        self.module = module
        self._hashed = names.hashed
        modules = sharded_modules(module, sharders)
        if not modules:
            raise ShardbenchError("there was no table to place.")
        self._places = {
            (sharded.path, name): (number, index)
            for number, sharded in enumerate(modules)
            for index, name in enumerate(sharded.parameters)
        }
        self._tables = names.written(name for _, name in self._places)
        constraints = {
            name: held
            for name, held in (planner._constraints or {}).items()
            if name in self._tables
        }
        configs = [config for sharded in modules for config, _ in sharded.configs()]
        features = names.written(
            name
            for owner in (*configs, *constraints.values())
            for name in owner.feature_names or ()
        )
        parts = names.written(
            part for sharded in modules for part in sharded.path.split(".") if part
        )
        self._paths = {
            sharded.path: ".".join(parts.get(part, "") for part in sharded.path.split("."))
            for sharded in modules
        }
        topology = planner._topology
        self.problem = CapturedProblem(
            topology=CapturedTopology.of(topology),
            batch_size=planner._batch_size,
            reservation=CapturedReservation.of(
                planner._storage_reservation, self._hashed, left=None, refused=None
            ),
            sharders=[
                CapturedSharder.of(sharder, kind, topology.compute_device)
                for kind, sharder in {module.kind: module.sharder for module in modules}.items()
            ],
            modules=[
                CapturedModule.of(sharded, self._paths[sharded.path], self._tables, features)
                for sharded in modules
            ],
            constraints={
                self._tables[name]: captured_constraints(held, name, features)
                for name, held in constraints.items()
            },
            planner=CapturedPlanner.of(planner, self._hashed),
            options=None,
            estimates=[],
            found=None,
        )

    def reserved(self, left: Topology | None, refused: str = "") -> None:
        """Record the memory that a storage reservation leaves, or the text of its error."""
        reservation = self.problem.reservation
        settings = reservation.settings
        if left is not None:
            reservation.left = device_runs(left)
        else:  # the errors of torchrec's own reservations contain no names
            may_be_written = settings is not None or not self._hashed
            reservation.refused = _first_line(refused) if may_be_written else ""
        # The size of the modules that are not sharded; the file does not have it.
        dense = getattr(self.planner._storage_reservation, "_dense_storage", None)
        if dense is not None and settings is not None and "dense_tensor_estimate" in settings:
            settings["dense_tensor_estimate"] = max(int(dense.hbm), int(dense.ddr))

    def enumerated(self, options: list[ShardingOption]) -> None:
        """Record the options of all tables, before proposers and partitioners change them."""
        self.problem.options, self.problem.estimates = captured_options(options, self._places)

    def found(self, result: ShardingPlan) -> None:
        planner = self.planner
        options = planner._best_plan or []
        if not self.problem.options and not result.plan:
            raise ShardbenchError("there was no table to place.")
        if _is_of(options, result):  # else the planner stores its plan elsewhere
            fqns = [f"{self._paths[o.path]}.{self._tables[o.name]}" for o in options]
            self.problem.found = FoundPlan(
                fingerprint=plan_fingerprint(options, fqns),
                proposals=planner._num_proposals,
                plans=planner._num_plans,
            )

    def failed(self, error: BaseException) -> None:
        """Record the planner's error; with hashed names its text is left out."""
        kind = type(error)
        is_known = kind.__module__.startswith(("torchrec.", "builtins"))
        self.problem.found = FoundPlan(
            error="an error of one's own" if self._hashed and not is_known else kind.__name__,
            text=None if self._hashed else _first_line(str(error)),
        )


def plain(value: object) -> object:
    """Convert a number or text of another class, such as NumPy's, to a built-in type."""
    if isinstance(value, Integral | Real):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"a {type(value).__name__} cannot be stored")


def _is_of(options: list[ShardingOption], result: ShardingPlan) -> bool:
    """Return whether `options` belong to the plan `result`, not to an earlier plan."""
    placed = {
        (path, name): sharding.ranks
        for path, module in result.plan.items()
        for name, sharding in cast(Any, module).items()
    }
    chosen = {
        (option.path, option.name): [shard.rank for shard in option.shards] for option in options
    }
    return bool(chosen) and chosen == placed


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:500]
