"""A storage reservation that leaves of the devices what a live planner's left."""

import copy

from torch import nn
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    PlannerError,
    PlannerErrorType,
    Topology,
)
from torchrec.distributed.types import ModuleSharder

from planners.embedding.capture.topology import DeviceRuns, set_storage, storage_by_rank


class ReplayedReservation(FixedPercentageStorageReservation):
    """Leaves of each device what was left of it, or refuses as was refused.

    It is one of torchrec's that reserve a percentage since torchrec asks for that in its errors.
    """

    def __init__(self, left: DeviceRuns | None, refused: str | None) -> None:
        super().__init__(percentage=0)
        self._left = left
        self._refused = refused

    def reserve(
        self,
        topology: Topology,
        batch_size: int,  # noqa: ARG002 - torchrec passes it - torchrec's own signature
        module: nn.Module,  # noqa: ARG002 - torchrec passes it
        sharders: list[ModuleSharder[nn.Module]],  # noqa: ARG002 - torchrec passes it
        constraints: dict[str, ParameterConstraints] | None = None,  # noqa: ARG002 - torchrec passes it
    ) -> Topology:
        """Return a copy of the topology with what is left of its devices.

        Raises:
            PlannerError: the live planner's reservation raised it.
        """
        if self._refused is not None:
            raise PlannerError(self._refused, PlannerErrorType.INSUFFICIENT_STORAGE)
        reserved = copy.deepcopy(topology)
        if self._left is not None:
            set_storage(reserved, storage_by_rank(self._left))
        self._last_reserved_topology = reserved
        return reserved
