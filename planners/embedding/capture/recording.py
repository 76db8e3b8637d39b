"""Listens to a live planner, and keeps what it was given and what it found as plain JSON types."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, cast

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
from planners.embedding.capture.components import component_written
from planners.embedding.capture.constraints import constraints_written
from planners.embedding.capture.method_calls import heard
from planners.embedding.capture.modules import Sharded, module_written, sharded_modules
from planners.embedding.capture.options import options_written
from planners.embedding.capture.sharders import sharder_written
from planners.embedding.capture.topology import devices_written, topology_written
from planners.embedding.drop_in.planner import Planner
from planners.embedding.torchrec_objects import fingerprint_of, said_by

Call = Callable[[], Any]


@contextmanager
def recording(names: Names) -> Iterator[Callable[[], Mapping[str, Any] | None]]:
    """Record what the EmbeddingShardingPlanners that plan inside are given; the last one counts.

    Yields:
        what returns the record so far; None where only another process of the job has planned.
    """
    recorder = _Recorder(names)
    with ExitStack() as stack:
        for base, method, listener in (
            (EmbeddingPlannerBase, "collective_plan", recorder.on_collective_plan),
            (EmbeddingShardingPlanner, "plan", recorder.on_plan),
            (Enumerator, "enumerate", recorder.on_enumerate),
            (StorageReservation, "reserve", recorder.on_reserve),
        ):
            stack.enter_context(heard(base, method, listener))
        yield recorder.content


class _Recorder:
    """Keeps the last plan that was made; what goes wrong here is no concern of the planner's."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._is_elsewhere = False
        self._error: ShardbenchError | None = None
        self._plan: _Plan | None = None

    def content(self) -> Mapping[str, Any] | None:
        """Return the record; raises ShardbenchError where there is none."""
        if self._error is not None:
            raise self._error
        if self._plan is None:
            if self._is_elsewhere:
                return None
            raise ShardbenchError("no EmbeddingShardingPlanner planned inside.")
        return self._plan.record

    def on_collective_plan(self, make: Call, *_: Any, **__: Any) -> Any:
        """Have rank 0 plan, which may be another process."""
        self._is_elsewhere = True  # until this process is the one that is asked to plan
        return make()

    def on_plan(
        self,
        make: Call,
        planner: EmbeddingShardingPlanner,
        module: nn.Module,
        sharders: list[ModuleSharder[nn.Module]] | None = None,
        *_: Any,
        **__: Any,
    ) -> Any:
        """Make a planner plan, and note all about it; what was noted before is forgotten."""
        self._error, self._plan = None, None
        self._note(lambda: self._begin(planner, module, sharders or []))
        try:
            result = make()
        except BaseException as error:
            raised = error
            self._note(lambda: self._with_plan(lambda plan: plan.failed(raised)))
            raise
        self._note(lambda: self._with_plan(lambda plan: plan.found(result)))
        return result

    def on_enumerate(
        self, make: Call, _: Enumerator, module: nn.Module, *__: Any, **___: Any
    ) -> Any:
        """Make an enumerator enumerate, and note its options."""
        options = make()
        self._note(lambda: self._with_plan(lambda plan: plan.enumerated(module, options)))
        return options

    def on_reserve(
        self,
        make: Call,
        _: StorageReservation,
        topology: Topology,  # noqa: ARG002 - torchrec passes it - torchrec gives all of them by name
        batch_size: int,  # noqa: ARG002 - torchrec passes it
        module: nn.Module,
        *__: Any,
        **___: Any,
    ) -> Any:
        """Make a storage reservation reserve, and note what it leaves."""
        try:
            left = make()
        except PlannerError as error:
            reason = str(error)
            self._note(lambda: self._with_plan(lambda plan: plan.refused(module, reason)))
            raise
        self._note(lambda: self._with_plan(lambda plan: plan.reserved(module, left)))
        return left

    def _begin(
        self,
        planner: EmbeddingShardingPlanner,
        module: nn.Module,
        sharders: list[ModuleSharder[nn.Module]],
    ) -> None:
        self._plan = _Plan(self._names, planner, module, sharders)

    def _with_plan(self, note: Callable[["_Plan"], None]) -> None:
        if self._plan is not None:
            note(self._plan)

    def _note(self, note: Callable[[], None]) -> None:
        """Note something; an error is kept for the end, and this plan is no longer noted."""
        try:
            note()
        except ShardbenchError as error:
            self._error, self._plan = error, None
        except Exception as error:  # somebody's own class may raise anything
            said = f"it cannot be written down ({type(error).__name__}: {error})."
            self._error, self._plan = ShardbenchError(said), None


class _Plan:
    """One call of `plan`; `record` is what is to be written of it."""

    def __init__(
        self,
        names: Names,
        planner: EmbeddingShardingPlanner,
        module: nn.Module,
        sharders: list[ModuleSharder[nn.Module]],
    ) -> None:
        self._planner = planner
        self._module = module
        self._hashed = names.hashed
        modules = sharded_modules(module, sharders)
        if not modules:
            raise ShardbenchError("there was no table to place.")
        self._places = {
            (sharded.path, name): (number, index)
            for number, sharded in enumerate(modules)
            for index, name in enumerate(sharded.parameters)
        }
        constraints = {
            name: held
            for name, held in (planner._constraints or {}).items()
            if name in {table for _, table in self._places}
        }
        configs = [config for sharded in modules for config, _ in sharded.configs()]
        self._tables = names.written(name for _, name in self._places)
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
        self.record: dict[str, Any] = {
            "topology": topology_written(planner._topology),
            "batch_size": planner._batch_size,
            "reservation": {
                **component_written(planner._storage_reservation, self._hashed),
                "left": None,
                "refused": None,
            },
            "sharders": _sharders_written(modules, planner._topology.compute_device),
            "modules": [
                module_written(sharded, self._paths[sharded.path], self._tables, features)
                for sharded in modules
            ],
            "constraints": {
                self._tables[name]: constraints_written(held, name, features)
                for name, held in constraints.items()
            },
            "planner": self._planner_written(),
            "options": None,
            "estimates": [],
            "found": None,
        }

    def _planner_written(self) -> dict[str, Any]:
        planner = self._planner
        own = {}
        kind = "EmbeddingShardingPlanner"
        if type(planner) is Planner:
            kind = "Planner"
            own = {
                "mode": planner._mode,
                "search_seconds": planner._search_seconds,
                "seed": planner._seed,
            }
        elif _plan_of(type(planner)) is not _plan_of(EmbeddingShardingPlanner):
            kind = "a class of one's own" if self._hashed else type(planner).__name__
        return {
            "kind": kind,
            **own,
            "proposers": [component_written(each, self._hashed) for each in planner._proposers],
            "partitioner": component_written(planner._partitioner, self._hashed),
            "perf_model": component_written(planner._perf_model, self._hashed),
            "timeout_seconds": planner._timeout_seconds,
            "loads_a_plan": planner.plan_loader is not None,
            "callbacks": len(planner._callbacks),
        }

    def reserved(self, module: nn.Module, left: Topology) -> None:
        """Note what a storage reservation leaves of the devices."""
        if module is self._module:
            self.record["reservation"]["left"] = devices_written(left)
            self._note_dense()

    def refused(self, module: nn.Module, reason: str) -> None:
        """Note that a storage reservation leaves less than nothing."""
        if module is self._module:
            is_known = self.record["reservation"]["settings"] is not None
            told = is_known or not self._hashed  # torchrec's own reservations tell figures alone
            self.record["reservation"]["refused"] = _first_line(reason) if told else ""
            self._note_dense()

    def _note_dense(self) -> None:
        """Write how much was reserved for what is not sharded, which the file has nothing of."""
        settings = self.record["reservation"]["settings"]
        dense = getattr(self._planner._storage_reservation, "_dense_storage", None)
        if settings is not None and "dense_tensor_estimate" in settings and dense is not None:
            settings["dense_tensor_estimate"] = max(int(dense.hbm), int(dense.ddr))

    def enumerated(self, module: nn.Module, options: list[ShardingOption]) -> None:
        """Note the options of all tables, before a proposer or a partitioner changes them."""
        if module is self._module:
            self.record.update(options_written(options, self._places))

    def found(self, result: ShardingPlan) -> None:
        """Note the plan that was found."""
        planner = self._planner
        options = planner._best_plan or []
        if not self.record["options"] and not result.plan:
            raise ShardbenchError("there was no table to place.")
        if not _is_of(options, result):  # the planner keeps it elsewhere
            return
        self.record["found"] = {
            "fingerprint": fingerprint_of(
                said_by(option, f"{self._paths[option.path]}.{self._tables[option.name]}")
                for option in options
            ),
            "proposals": planner._num_proposals,
            "plans": planner._num_plans,
        }

    def failed(self, error: BaseException) -> None:
        """Note the error that was raised instead; its text may have names in it."""
        self.record["found"] = {
            "error": type(error).__name__
            if not self._hashed or type(error).__module__.startswith(("torchrec.", "builtins"))
            else "an error of one's own",
            "text": None if self._hashed else _first_line(str(error)),
        }


def _sharders_written(modules: list[Sharded], device: str) -> list[dict[str, Any]]:
    by_kind = {each.kind: each.sharder for each in modules}
    return [sharder_written(sharder, kind, device) for kind, sharder in by_kind.items()]


def _plan_of(kind: type[EmbeddingShardingPlanner]) -> Any:
    return cast(Any, kind.plan)


def _is_of(options: list[ShardingOption], result: ShardingPlan) -> bool:
    """Whether these are the options of a plan, and not those of an earlier one."""
    placed = {
        (path, name): sharding.ranks
        for path, module in result.plan.items()
        for name, sharding in cast(Any, module).items()
    }
    chosen = {(each.path, each.name): [shard.rank for shard in each.shards] for each in options}
    return bool(chosen) and chosen == placed


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:500]
