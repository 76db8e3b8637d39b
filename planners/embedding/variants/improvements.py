"""Changes that save torchrec's planner work, each a subclass or a hook.

All decide as torchrec does. `docs/embedding.md` says where in torchrec each of them belongs.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
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
    """Have devices and their figures copied field by field, as torchrec does since 1.9.0."""

    def copy_device(device: DeviceHardware, _: dict[int, Any]) -> DeviceHardware:
        return DeviceHardware(device.rank, replace(device.storage), replace(device.perf))

    rows = [(kind, "__deepcopy__", lambda each, memo: replace(each)) for kind in (Perf, Storage)]
    rows.append((DeviceHardware, "__deepcopy__", copy_device))
    with replaced([] if copies_devices_by_field() else rows):
        yield


@contextmanager
def remembered_annotations() -> Iterator[None]:
    """Have an estimator's configuration scanned once for each annotation and sharding type."""

    def rows(module: ModuleType) -> Iterator[tuple[Any, str, Any]]:
        for name, look_up in vars(module).items():
            if name.startswith("get_") and look_up is vars(annotations).get(name):
                yield module, name, cache(look_up)

    with replaced([*rows(estimator), *rows(types)]):
        yield


class NoSpaceCopyEnumerator(EmbeddingEnumerator):
    """Stores the options that it returns, not a deep copy of each."""

    def populate_estimates(self, sharding_options: list[ShardingOption]) -> None:
        """Fill in the estimates, and have the options stored as they are."""
        super().populate_estimates(sharding_options)
        for option in sharding_options:
            option.__class__ = _StoredOption

    def enumerate(
        self, module: nn.Module, sharders: list[ModuleSharder[nn.Module]]
    ) -> list[ShardingOption]:
        """Return torchrec's options, which are copied when they are enumerated again."""
        options: list[ShardingOption] = super().enumerate(module, sharders)
        for option in options:
            option.__class__ = ShardingOption
        return options


class _StoredOption(ShardingOption):
    """An option that is its own copy, while the enumerator stores the search space."""

    def __deepcopy__(self, memo: dict[int, Any] | None) -> "_StoredOption":
        return self


class DistinctShardsEnumerator(NoSpaceCopyEnumerator):
    """Asks the estimators about one shard of each size of an option.

    Right for estimators that look at shards one by one, as torchrec's own do.
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
    """Have the partitioner try a host on new devices that share the figures of the old ones.

    Figures are replaced when a shard is placed, never changed, so they need no copy.
    """

    def copied(original: Perf | list[DeviceHardware]) -> Perf | list[DeviceHardware]:
        if isinstance(original, Perf):
            return original
        return [DeviceHardware(each.rank, each.storage, each.perf) for each in original]

    with replaced([(partitioners, "copy", SimpleNamespace(deepcopy=copied))]):
        yield


class RememberedHashOption(ShardingOption):
    """An option that remembers its hash, which is asked for before any shard has a rank."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        number: int = super().__hash__()
        return number


class RememberedHashEnumerator(DistinctShardsEnumerator):
    """Gives out options that remember their hash."""

    option: type[ShardingOption] = RememberedHashOption

    def enumerate(
        self, module: nn.Module, sharders: list[ModuleSharder[nn.Module]]
    ) -> list[ShardingOption]:
        """Return torchrec's options, each turned into one that remembers."""
        options = super().enumerate(module, sharders)
        for option in options:
            option.__class__ = self.option
        return options


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
    """Gives out options that remember their totals too."""

    option = RememberedTotalsOption


@dataclass(frozen=True, slots=True)
class Improvement:
    """A change of torchrec's planner: a hook, or an enumerator in the place of the one before."""

    hook: Hook | None = None
    enumerator: type[EmbeddingEnumerator] | None = None


IMPROVEMENTS = {
    "cheap-device-copies": Improvement(devices_copied_by_field),
    "remembered-annotations": Improvement(remembered_annotations),
    "no-space-copy": Improvement(enumerator=NoSpaceCopyEnumerator),
    "distinct-shards": Improvement(enumerator=DistinctShardsEnumerator),
    "shared-device-figures": Improvement(shared_device_figures),
    "remembered-hashes": Improvement(enumerator=RememberedHashEnumerator),
    "remembered-totals": Improvement(enumerator=RememberedTotalsEnumerator),
}
"""Each comes on top of those before it."""


def prepare(problem: EmbeddingProblem, last: str) -> Prepared[Plan]:
    """Prepare the greedy planner with all improvements up to this one."""
    names = list(IMPROVEMENTS)
    applied = [IMPROVEMENTS[name] for name in names[: names.index(last) + 1]]
    kinds = [each.enumerator for each in applied if each.enumerator]
    kind = kinds[-1] if kinds else EmbeddingEnumerator
    prepared = decision.prepare(
        problem,
        proposer=GreedyProposer,
        partitioner=partitioners.GreedyPerfPartitioner,
        enumerator=lambda: problem.enumerator(kind),
    )

    @contextmanager
    def installed() -> Iterator[None]:
        with ExitStack() as hooks:
            for each in applied:
                if each.hook:
                    hooks.enter_context(each.hook())
            yield

    return replace(prepared, installed=installed)
