"""Enumerates only the options of a known plan, with its estimates and ranks."""

from collections.abc import Mapping

from torch import nn
from torchrec.distributed.planner.types import Shard, ShardingOption
from torchrec.distributed.types import ModuleSharder
from typing_extensions import override

from harness.contract import InfeasibleDecision
from planners.embedding.plan_files.document import PlanDocument, TableEntry
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.options import ShardLayout, SharedOption, with_shards

_READ_BY_STATISTICS = ("_sharder_map", "_sharder_data_map")  # 1.6.1 has only the first


class _KnownOption(SharedOption):
    """An option with a fast hash; the copy is a ShardingOption with its own shards."""

    __hash__ = object.__hash__

    def __deepcopy__(self, memo: dict[int, object] | None) -> ShardingOption:
        shards = [Shard(s.size, s.offset, s.storage, s.perf, s.rank) for s in self.shards]
        return with_shards(self, shards, ShardingOption)


class _ChosenOptions(DistinctShardEnumerator):
    """Enumerates with another enumerator's settings, but one option per table, unestimated."""

    def __init__(self, settings: DistinctShardEnumerator, chosen: Mapping[str, TableEntry]) -> None:
        self.__dict__.update(settings.__dict__)
        self.__dict__.pop("enumerate", None)  # a method that is replaced while a planner plans
        self._last_stored_module = None
        self._stashed, self._special = {}, {}
        self._chosen = chosen

    @override
    def _filter_sharding_types(self, name: str, *allowed: object) -> list[str]:
        kinds = super()._filter_sharding_types(name, *allowed)
        return [kind for kind in kinds if kind == self._chosen[name].sharding_type]

    @override
    def _filter_compute_kernels(self, name: str, *allowed: object) -> list[str]:
        kernels = super()._filter_compute_kernels(name, *allowed)
        return [kernel for kernel in kernels if kernel == self._chosen[name].compute_kernel]

    @override
    def populate_estimates(self, sharding_options: list[ShardingOption]) -> None:
        """Leave the shards without estimates; only make the options cheap to copy."""
        for option in sharding_options:
            option.__class__ = SharedOption


def options_of(
    plan: PlanDocument,
    enumerator: DistinctShardEnumerator,
    module: nn.Module,
    sharders: list[ModuleSharder[nn.Module]],
) -> list[ShardingOption]:
    """Return a plan's options in its order, as `enumerator` would make them for a model.

    Raises an error if the model has other tables, or if torchrec does not allow an option or cuts
    its table otherwise.
    """
    chosen = {table.name: table for table in plan.tables}
    own = _ChosenOptions(enumerator, chosen)
    made = own.enumerate(module, sharders)
    for name in _READ_BY_STATISTICS:
        if hasattr(own, name):
            setattr(enumerator, name, getattr(own, name))
    enumerator.postponed = (module, sharders)
    by_name = {option.name: option for option in made}
    if len(made) != len(plan.tables):
        raise InfeasibleDecision(f"The plan has {len(plan.tables)} tables, not {len(made)}.")
    return [_with_plan(by_name[name], table) for name, table in chosen.items()]


def _with_plan(option: ShardingOption, table: TableEntry) -> ShardingOption:
    shards = [entry.shard() for entry in table.shards]
    layout = option.shards[0].size
    made = layout.shards() if isinstance(layout, ShardLayout) else option.shards
    cut = [([*shard.size], [*shard.offset]) for shard in made]
    if cut != [(shard.size, shard.offset) for shard in shards]:
        raise InfeasibleDecision(f"Table {option.name} is cut otherwise in the plan.")
    return with_shards(option, shards, _KnownOption)
