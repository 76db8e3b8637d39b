"""The rungs of the copying ladder: torchrec's planner with more copies, and with less work.

First the deep copies that older releases made, then changes of ours, each a subclass or attributes
to replace. All find torchrec's plan. `docs/torchrec.md` shows where each belongs in torchrec.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache, cached_property, partial
from types import SimpleNamespace
from typing import Any

from torch import nn
from torchrec.distributed.planner import partitioners
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator import annotations, estimator, types
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.proposers import GreedyProposer
from torchrec.distributed.planner.types import (
    DeviceHardware,
    Perf,
    Shard,
    ShardingOption,
    Storage,
    Topology,
)
from torchrec.distributed.types import ModuleSharder

from harness.contract import Prepared
from planners.embedding import decision
from planners.embedding.decision import Plan
from planners.embedding.problem import EmbeddingProblem
from planners.instruments import replaced

Attributes = list[tuple[Any, str, Any]]
"""Attributes to replace, as (owner, name, value)."""


class OptionsEnumerator(EmbeddingEnumerator):
    """TorchRec's enumerator, but with options of class `option`, which may be set."""

    option = ShardingOption

    def enumerate(
        self, module: nn.Module, sharders: list[ModuleSharder[nn.Module]]
    ) -> list[ShardingOption]:
        """Return torchrec's options, each turned into an `option`."""
        options: list[ShardingOption] = super().enumerate(module, sharders)
        for option in options:
            option.__class__ = self.option
        return options


class WhollyCopiedOption(ShardingOption):
    """An option with a deepcopy that copies every field, including the tensor and the module."""

    __deepcopy__ = None  # Python's default


class CopyingGreedyProposer(GreedyProposer):
    """TorchRec's greedy proposer that returns deep copies of proposals, as in torchrec 0.2.0."""

    def propose(self) -> list[ShardingOption] | None:
        """Return a deep copy of the next proposal."""
        proposal: list[ShardingOption] | None = super().propose()
        return copy.deepcopy(proposal)


class CopyingPartitioner(GreedyPerfPartitioner):
    """TorchRec's partitioner that copies the topology for each proposal (torchrec 0.2.0 to 1.3.0).

    With `copies_proposals` it also places a deep copy of each proposal (torchrec 0.2.0 to 0.4.0).
    """

    def __init__(self, copies_proposals: bool) -> None:
        super().__init__()
        self._copies_proposals = copies_proposals

    def partition(
        self, proposal: list[ShardingOption], storage_constraint: Topology
    ) -> list[ShardingOption]:
        """Place a proposal, or its deep copy, on a copy of the topology; return the plan."""
        if self._copies_proposals:
            proposal = copy.deepcopy(proposal)
        placed: list[ShardingOption] = super().partition(
            proposal, copy.deepcopy(storage_constraint)
        )
        return placed


def devices_copied_generically() -> Attributes:
    """Make deepcopy copy devices by Python's default, as torchrec did up to 1.8.0."""
    return [(kind, "__deepcopy__", None) for kind in (DeviceHardware, Perf, Storage)]


def remembered_annotations() -> Attributes:
    """Cache the scans of an estimator's configuration, by annotation and sharding type."""
    return [
        (module, name, cache(look_up))
        for module in (estimator, types)
        for name, look_up in vars(module).items()
        if name.startswith("get_") and look_up is vars(annotations).get(name)
    ]


class _StoredOption(ShardingOption):
    """An option that deepcopy returns as is, used while the enumerator stores its options."""

    def __deepcopy__(self, memo: dict[int, Any] | None) -> "_StoredOption":
        return self


class NoSpaceCopyEnumerator(OptionsEnumerator):
    """Stores the returned options, not deep copies of them; a later call returns deep copies."""

    def populate_estimates(self, sharding_options: list[ShardingOption]) -> None:
        """Fill in the estimates, and prevent the deep copy of the options that follows."""
        super().populate_estimates(sharding_options)
        for option in sharding_options:
            option.__class__ = _StoredOption


class DistinctShardsEnumerator(NoSpaceCopyEnumerator):
    """Estimates one shard of each size of an option, and reuses the result.

    This is correct for estimators that treat shards independently, as torchrec's own do.
    """

    def populate_estimates(self, sharding_options: list[ShardingOption]) -> None:
        """Fill in the estimates; shards of equal size share their estimate."""
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


def shared_device_figures() -> Attributes:
    """Make the partitioner copy devices without copying their storage and perf objects.

    Placing a shard replaces these objects and never changes them, so no copies are needed.
    """

    def copied(original: Perf | list[DeviceHardware]) -> Perf | list[DeviceHardware]:
        if isinstance(original, Perf):
            return original
        return [DeviceHardware(device.rank, device.storage, device.perf) for device in original]

    return [(partitioners, "copy", SimpleNamespace(deepcopy=copied))]


class RememberedHashOption(ShardingOption):
    """An option that caches its hash; the first call is made before any shard has a rank."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        number: int = super().__hash__()
        return number


class RememberedTotalsOption(RememberedHashOption):
    """An option that caches its hash and the sums of its shards' storage and perf."""

    @cached_property
    def total_storage(self) -> Storage:
        """The storage of all shards together."""
        total: Storage = super().total_storage
        return total

    @cached_property
    def total_perf(self) -> float:
        """The perf of all shards together, in milliseconds."""
        total: float = super().total_perf
        return total


_IMPROVEMENTS: dict[str, Callable[[], Attributes] | type[Any]] = {
    "remembered-annotations": remembered_annotations,
    "no-space-copy": NoSpaceCopyEnumerator,
    "distinct-shards": DistinctShardsEnumerator,
    "shared-device-figures": shared_device_figures,
    "remembered-hashes": RememberedHashOption,
    "remembered-totals": RememberedTotalsOption,
}


def rung(problem: EmbeddingProblem, name: str) -> Prepared[Plan]:
    """Prepare the greedy planner with the copies of this rung, or all improvements up to it."""
    proposer: type[GreedyProposer] = GreedyProposer
    partitioner: Callable[[], GreedyPerfPartitioner] = GreedyPerfPartitioner
    kind: type[EmbeddingEnumerator] = EmbeddingEnumerator
    option: type[ShardingOption] = ShardingOption
    changes: list[Callable[[], Attributes]] = []
    # 1. What the rung copies.
    if name == "double-deepcopy":
        proposer = CopyingGreedyProposer
    if name in ("double-deepcopy", "single-deepcopy"):
        kind, option = OptionsEnumerator, WhollyCopiedOption
    if name in ("double-deepcopy", "single-deepcopy", "custom-deepcopy", "copy-if-better"):
        partitioner = partial(CopyingPartitioner, copies_proposals=name != "copy-if-better")
    if name == "no-topology-copy" or partitioner is not GreedyPerfPartitioner:
        changes.append(devices_copied_generically)
    # 2. What it improves: attributes add up; a class replaces the one before it. Torchrec copies
    #    devices cheaply since 1.9.0.
    names = list(_IMPROVEMENTS)
    for improvement in names[: names.index(name) + 1] if name in names else ():
        change = _IMPROVEMENTS[improvement]
        if not isinstance(change, type):
            changes.append(change)
        elif issubclass(change, ShardingOption):
            option = change
        else:
            kind = change

    def enumerator() -> EmbeddingEnumerator:
        made = problem.enumerator(kind)
        made.option = option
        return made

    prepared = decision.prepare(
        problem, proposer=proposer, partitioner=partitioner, enumerator=enumerator
    )
    return replace(
        prepared, installed=lambda: replaced([row for change in changes for row in change()])
    )
