"""TorchRec's planner with the deep copies that older releases made, each as a subclass."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.proposers import GreedyProposer
from torchrec.distributed.planner.types import (
    DeviceHardware,
    Perf,
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


class WhollyCopiedOption(ShardingOption):
    """An option with a deepcopy that copies every field, including the tensor and the module."""

    def __deepcopy__(self, memo: dict[int, Any] | None) -> "WhollyCopiedOption":
        memo = {} if memo is None else memo
        copied = object.__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied


class WhollyCopiedOptionEnumerator(EmbeddingEnumerator):
    """TorchRec's enumerator, but with options that are deep-copied with every field."""

    def enumerate(
        self, module: nn.Module, sharders: list[ModuleSharder[nn.Module]]
    ) -> list[ShardingOption]:
        """Return torchrec's options, each turned into a WhollyCopiedOption."""
        options: list[ShardingOption] = super().enumerate(module, sharders)
        for option in options:
            option.__class__ = WhollyCopiedOption
        return options


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
        self,
        proposal: list[ShardingOption],
        storage_constraint: Topology,
        hbm_per_device: int | None = None,
    ) -> list[ShardingOption]:
        """Place a proposal, or its deep copy, on a copy of the topology; return the plan."""
        placed: list[ShardingOption] = super().partition(
            copy.deepcopy(proposal) if self._copies_proposals else proposal,
            copy.deepcopy(storage_constraint),
            hbm_per_device,
        )
        return placed


@contextmanager
def devices_copied_generically() -> Iterator[None]:
    """Make deepcopy copy devices by Python's default, as torchrec did up to 1.8.0."""
    with replaced((kind, "__deepcopy__", None) for kind in (DeviceHardware, Perf, Storage)):
        yield


def copies_devices_by_field() -> bool:
    """Return whether the installed torchrec copies devices field by field (since 1.9.0)."""
    return "__deepcopy__" in vars(DeviceHardware)


def prepare(
    problem: EmbeddingProblem,
    *,
    in_proposer: bool = False,
    in_partitioner: bool = False,
    whole_options: bool = False,
    topology: bool = True,
) -> Prepared[Plan]:
    """Prepare the greedy planner with these deep copies.

    `whole_options` copies an option's tensor and module too; `topology` copies the topology for
    each proposal.
    """
    copying = partial(CopyingPartitioner, copies_proposals=in_partitioner)
    enumerator = WhollyCopiedOptionEnumerator if whole_options else EmbeddingEnumerator
    prepared = decision.prepare(
        problem,
        proposer=CopyingGreedyProposer if in_proposer else GreedyProposer,
        partitioner=copying if topology else GreedyPerfPartitioner,
        enumerator=lambda: problem.enumerator(enumerator),
    )
    return replace(prepared, installed=devices_copied_generically)
