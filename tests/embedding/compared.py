"""Runs a planner and returns its plan, counts and log, to compare with those of another planner."""

import copy
import re
from collections.abc import Iterable
from typing import Any

from torch import nn
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import Enumerator, PlannerError, ShardingOption, Stats


class FixedEnumerator(Enumerator):
    """An enumerator that always returns copies of the same options."""

    def __init__(self, options: list[ShardingOption]) -> None:
        self._options = options

    def enumerate(self, module: nn.Module, sharders: list[Any]) -> list[ShardingOption]:
        return copy.deepcopy(self._options)

    def populate_estimates(self, sharding_options: list[ShardingOption]) -> None:
        raise NotImplementedError


class Log(Stats):
    """Stats that record what a planner logs about its plan, or about its last failed proposal."""

    def __init__(self) -> None:
        self.logged: list[Any] = []

    def log(self, **values: Any) -> None:
        self.logged.append(
            (
                values["num_proposals"],
                values["num_plans"],
                _described(values["best_plan"]),
                str(values["sharding_plan"]),
                type(values["storage_reservation"]),
            )
        )


def components(case: Any) -> dict[str, Any]:
    """Return the arguments of a planner for a case of random options."""
    return {
        "topology": case.topology,
        "enumerator": FixedEnumerator(case.options),
        "storage_reservation": FixedPercentageStorageReservation(percentage=0),
        "stats": [Log()],
    }


def come_to(planner: EmbeddingShardingPlanner, module: Any = None, sharders: Any = ()) -> Any:
    """Call `plan`; return the plan or the error, the counts, and the log."""
    try:
        plan = planner.plan(nn.Module() if module is None else module, list(sharders))
    except PlannerError as error:
        outcome = (type(error), error.error_type, nameless(str(error)))
    except Exception as error:
        outcome = (type(error), None, nameless(str(error)))
    else:
        outcome = (plan.plan, _described(planner._best_plan or []), planner._best_plan is None)
    counts = planner._num_proposals, planner._num_plans
    return outcome, counts, [values for stats in planner._stats for values in stats.logged]


def choice(table: Any) -> tuple[Any, ...]:
    """Return how a table is sharded, by its option or by its entry in a plan file."""
    return (
        table.sharding_type,
        table.compute_kernel,
        repr(table.cache_load_factor),  # torchrec hashes its text
        [(shard.size, shard.offset, shard.rank) for shard in table.shards],
    )


def decisions(tables: Iterable[Any]) -> dict[str, tuple[Any, ...]]:
    """Return how each table is sharded, by its name."""
    return {table.name: choice(table) for table in tables}


def _described(options: list[ShardingOption]) -> list[Any]:
    return [
        {**vars(option), "_tensor": None, "_module": option.module[0], "is": type(option)}
        for option in options
    ]


def nameless(text: str) -> str:
    """Remove the addresses of objects from a text."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)
