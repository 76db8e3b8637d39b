"""A captured file of the embedding family, read and checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torchrec.distributed.planner.types import ParameterConstraints, Storage

from harness.contract import Topology as Machines
from harness.contract import UsageError
from harness.contract.captured_file import read_captured
from planners.embedding.capture.components import Component, component_read
from planners.embedding.capture.constraints import constraints_read
from planners.embedding.capture.fields import Fields, Malformed
from planners.embedding.capture.modules import CapturedModule, model_of, module_read
from planners.embedding.capture.options import CapturedOptions, options_read
from planners.embedding.capture.planner import LivePlanner, live_read
from planners.embedding.capture.reservation import CapturedReservation
from planners.embedding.capture.sharders import CapturedSharder, sharder_read
from planners.embedding.capture.topology import CapturedTopology, devices_read, topology_read
from planners.embedding.tables import MOST_TABLES

FAMILY = "embedding"
_MOST_BATCH = 2**31


@dataclass(frozen=True, slots=True)
class Captured:
    """What a live planner was given, and what it found.

    `left` is what the storage reservation left of each device, `refused` the reason where it
    refused to, which is empty where that is not told.
    """

    topology: CapturedTopology
    batch_size: int
    reservation: Component
    left: tuple[Storage, ...] | None
    refused: str | None
    sharders: tuple[CapturedSharder, ...]
    modules: tuple[CapturedModule, ...]
    constraints: Mapping[str, ParameterConstraints]
    options: CapturedOptions | None
    live: LivePlanner

    def model(self) -> nn.Module:
        """Return a new model of these modules; raises Malformed where there can be none."""
        return model_of(self.modules)

    def reserved(self) -> CapturedReservation:
        """Return a new reservation that leaves what was left."""
        return CapturedReservation(self.left, self.refused)


def read_problem(path: str | Path) -> Captured:
    """Read a captured file.

    Raises:
        UsageError: it is none of this family, or what it says cannot be so.
    """
    said = read_captured(path, FAMILY)
    try:
        return _captured(Fields(said, "the file"))
    except (Malformed, OverflowError, RecursionError) as error:
        raise UsageError(f"{path} is damaged: {error}.") from None


def read_machines(path: str | Path) -> Machines:
    """Read what the harness calls the machines of a captured file.

    Raises:
        UsageError: it is none of this family, or what it says of them cannot be so.
    """
    said = read_captured(path, FAMILY)
    try:
        return topology_read(Fields(said, "the file").inner("topology")).machines()
    except (Malformed, OverflowError) as error:
        raise UsageError(f"{path} is damaged: {error}.") from None


def _captured(said: Fields) -> Captured:
    topology = topology_read(said.inner("topology"))
    reservation = said.inner("reservation")
    modules = tuple(module_read(each) for each in said.each("modules", "module", MOST_TABLES))
    if sum(len(module.tables) for module in modules) > MOST_TABLES:
        raise Malformed(f"there must be at most {MOST_TABLES:,} tables")
    if not modules or len({module.path for module in modules}) < len(modules):
        raise Malformed("there must be modules, each with a path of its own")
    sharders = tuple(sharder_read(each) for each in said.each("sharders", "sharder"))
    if {each.module for each in sharders} != {module.kind for module in modules}:
        raise Malformed("there must be a sharder for each kind of module")
    constraints = said.inner("constraints")
    fqns = [[f"{module.path}.{table.name}" for table in module.tables] for module in modules]
    found: Fields | None = said.optional("found", said.inner)
    left: Any = reservation.optional(
        "left", lambda key: devices_read(reservation, key, len(topology.devices))
    )
    return Captured(
        topology=topology,
        batch_size=said.whole("batch_size", 1, _MOST_BATCH),
        reservation=component_read(reservation, "reservation"),
        left=left,
        refused=reservation.optional("refused", reservation.text),
        sharders=sharders,
        modules=modules,
        constraints={
            name: constraints_read(constraints.inner(name)) for name in constraints.names()
        },
        options=said.optional("options", lambda key: options_read(said, fqns)),
        live=live_read(said.inner("planner"), found),
    )
