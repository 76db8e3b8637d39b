"""Changes that save torchrec's planner work, each a subclass or a hook.

All decide as torchrec does. `docs/embedding.md` shows where each belongs in torchrec.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import cache, cached_property
from types import ModuleType, SimpleNamespace
from typing import Any

from torch import nn
from torchrec.distributed.planner import partitioners
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator import annotations, estimator, types
from torchrec.distributed.planner.proposers import GreedyProposer
from torchrec.distributed.planner.types import (
    DeviceHardware,
    Perf,
    Shard,
    ShardingOption,
    Storage,
)
from torchrec.distributed.types import ModuleSharder

from harness.contract import Prepared
from planners.embedding import decision
from planners.embedding.decision import Plan
from planners.embedding.problem import EmbeddingProblem
from planners.embedding.variants.copies import copies_devices_by_field
from planners.instruments import replaced

Hook = Callable[[], AbstractContextManager[Any]]


@contextmanager
def devices_copied_by_field() -> Iterator[None]:
    """Copy devices and their figures field by field, as torchrec does since 1.9.0."""

    def copy_device(device: DeviceHardware, _: dict[int, Any]) -> DeviceHardware:
        return DeviceHardware(device.rank, replace(device.storage), replace(device.perf))

    rows = [(kind, "__deepcopy__", lambda figure, _: replace(figure)) for kind in (Perf, Storage)]
    rows.append((DeviceHardware, "__deepcopy__", copy_device))
    with replaced([] if copies_devices_by_field() else rows):
        yield


@contextmanager
def remembered_annotations() -> Iterator[None]:
    """Scan an estimator's configuration once for each annotation and sharding type."""

    def rows(module: ModuleType) -> Iterator[tuple[Any, str, Any]]:
        for name, look_up in vars(module).items():
            if name.startswith("get_") and look_up is vars(annotations).get(name):
                yield module, name, cache(look_up)

    with replaced([*rows(estimator), *rows(types)]):
        yield


class NoSpaceCopyEnumerator(EmbeddingEnumerator):
    """Stores the options that it returns, not deep copies."""

    option = ShardingOption
    """Class of the returned options."""

    def populate_estimates(self, sharding_options: list[ShardingOption]) -> None:
        """Fill in the estimates; the options are then stored themselves."""
        super().populate_estimates(sharding_options)
        for option in sharding_options:
            option.__class__ = _StoredOption

    def enumerate(
        self, module: nn.Module, sharders: list[ModuleSharder[nn.Module]]
    ) -> list[ShardingOption]:
        """Return torchrec's options, which are copied when they are enumerated again."""
        options: list[ShardingOption] = super().enumerate(module, sharders)
        for option in options:
            option.__class__ = self.option
        return options


class _StoredOption(ShardingOption):
    """An option that is its own copy, while the enumerator stores the search space."""

    def __deepcopy__(self, memo: dict[int, Any] | None) -> "_StoredOption":
        return self


class DistinctShardsEnumerator(NoSpaceCopyEnumerator):
    """Asks the estimators about one shard of each size of an option.

    Correct for estimators that look at shards one by one, as torchrec's own do.
    """

    def populate_estimates(self, sharding_options: list[ShardingOption]) -> None:
        """Fill in the estimates: shards of one size share them."""
        shards: list[list[Shard]] = [option.shards for option in sharding_options]
        for option in sharding_options:
            option.shards = list({tuple(shard.size): shard for shard in option.shards}.values())
        super().populate_estimates(sharding_options)
        for option, whole in zip(sharding_options, shards, strict=True):
            estimated = {tuple(shard.size): shard for shard in option.shards}
            for shard in whole:
                like = estimated[tuple(shard.size)]
                shard.perf, shard.storage = like.perf, like.storage
            option.shards = whole


@contextmanager
def shared_device_figures() -> Iterator[None]:
    """Let the partitioner try a host on new devices that share the figures of the old ones.

    Placing a shard replaces figures and never changes them, so they need no copy.
    """

    def copied(original: Perf | list[DeviceHardware]) -> Perf | list[DeviceHardware]:
        if isinstance(original, Perf):
            return original
        return [DeviceHardware(device.rank, device.storage, device.perf) for device in original]

    with replaced([(partitioners, "copy", SimpleNamespace(deepcopy=copied))]):
        yield


class RememberedHashOption(ShardingOption):
    """An option that remembers its hash, which is first asked for before any shard has a rank."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        number: int = super().__hash__()
        return number


class RememberedHashEnumerator(DistinctShardsEnumerator):
    """Returns options that remember their hash."""

    option = RememberedHashOption


class RememberedTotalsOption(RememberedHashOption):
    """An option that adds up the storage and the perf of its shards once."""

    @cached_property
    def total_storage(self) -> Storage:
        """The sum over all shards."""
        total: Storage = super().total_storage
        return total

    @cached_property
    def total_perf(self) -> float:
        """The sum over all shards, in milliseconds."""
        total: float = super().total_perf
        return total


class RememberedTotalsEnumerator(RememberedHashEnumerator):
    """Returns options that remember their totals too."""

    option = RememberedTotalsOption


IMPROVEMENTS: dict[str, Hook | type[EmbeddingEnumerator]] = {
    "cheap-device-copies": devices_copied_by_field,
    "remembered-annotations": remembered_annotations,
    "no-space-copy": NoSpaceCopyEnumerator,
    "distinct-shards": DistinctShardsEnumerator,
    "shared-device-figures": shared_device_figures,
    "remembered-hashes": RememberedHashEnumerator,
    "remembered-totals": RememberedTotalsEnumerator,
}
"""Hooks add up; an enumerator replaces the one before it."""


def prepare(problem: EmbeddingProblem, last: str) -> Prepared[Plan]:
    """Prepare the greedy planner with all improvements up to this one."""
    applied = list(IMPROVEMENTS.values())[: list(IMPROVEMENTS).index(last) + 1]
    hooks = [change for change in applied if not isinstance(change, type)]
    kind = [EmbeddingEnumerator, *(change for change in applied if isinstance(change, type))][-1]
    prepared = decision.prepare(
        problem,
        proposer=GreedyProposer,
        partitioner=partitioners.GreedyPerfPartitioner,
        enumerator=lambda: problem.enumerator(kind),
    )

    @contextmanager
    def installed() -> Iterator[None]:
        with ExitStack() as entered:
            for hook in hooks:
                entered.enter_context(hook())
            yield

    return replace(prepared, installed=installed)
