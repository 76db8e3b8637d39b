"""Builds the planning problem of a captured file, for the captured machines or for others."""

from dataclasses import replace
from typing import Any

from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    Perf,
    PlannerError,
    PlannerErrorType,
    Storage,
)

from harness.contract import CAPTURED, Topology, UsageError, one_line
from planners.embedding.capture.file import CapturedOptions, CapturedProblem, read_problem
from planners.embedding.capture.mirrors import device_runs
from planners.embedding.capture.modules import model_of
from planners.embedding.estimates.machines import find_machine
from planners.embedding.problem import EmbeddingProblem, changed, torchrec_topology
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.tables.files import Table, lookup_of


def build_captured(path: str, machines: Topology) -> EmbeddingProblem:
    """Build the problem of a captured file.

    If the name of `machines` is `captured`, the machines and options are those of the file. On
    other machines, or judged by a calibrated one, the options are enumerated and estimated again,
    and on others the captured storage reservation reserves memory. Raises UsageError if the file is
    damaged, or if the problem cannot be planned with the installed torchrec or on these machines.
    """
    captured = read_problem(path)
    try:
        problem = _problem(captured)
        if captured.options is not None:
            problem = replace(problem, options=_replayed_options(problem, captured))
    except UsageError as error:
        raise UsageError(f"{path} cannot be planned again: {error}") from None
    except Exception as error:  # torchrec raises errors of many types, AssertionError too
        reason = f"as torchrec refuses it: {one_line(error)}"
        raise UsageError(f"{path} cannot be planned again, {reason}.") from None
    name, _, judge = machines.name.partition("+")
    if name == CAPTURED and not judge:
        return problem
    obstacle = name != CAPTURED and captured.reservation.obstacle
    if obstacle:
        obstacle = f"its storage reservation {obstacle}"
    if problem.options is not None and problem.options.fed:
        obstacle = "its estimates are not those of the installed torchrec"
    if obstacle:
        only = "by its own estimates" if name == CAPTURED else "for its own machines"
        raise UsageError(f"{path} can only be planned {only}: {obstacle}.")
    machine = find_machine(machines.machine) if machines.machine else None
    if name == CAPTURED:
        return replace(problem, options=None, machine=machine, known={})
    return changed(
        problem,
        topology=torchrec_topology(machines),
        memory="captured, moved",
        reservation=captured.reservation.make,
        options=None,
        machine=machine,
    )


def _problem(captured: CapturedProblem) -> EmbeddingProblem:
    """Return the problem for the captured machines, whose options torchrec enumerates."""
    constraints = {name: constraint.make() for name, constraint in captured.constraints.items()}
    otherwise = ParameterConstraints()
    tables, paths = [], []
    for collection in captured.modules:
        for table in collection.tables:
            constraint = constraints.get(table.name, otherwise)
            # Tables of other device groups belong to a planner for another kind of device.
            if constraint.device_group in (None, "", captured.topology.compute_device):
                factors = tuple(map(float, constraint.pooling_factors))
                lookup = lookup_of(collection.is_pooled, collection.is_weighted)
                tables.append(
                    Table(table.name, table.rows, table.dim, factors, table.dtype, lookup)
                )
                paths.append(collection.path)
    kernels = (
        {kernel.value for kernel in EmbeddingComputeKernel}
        if captured.options is None
        else {option.compute_kernel for option in captured.options}
    )
    left = captured.topology.make(captured.reservation.left).devices
    return EmbeddingProblem(
        tables=tuple(tables),
        paths=tuple(paths),
        topology=captured.topology.make(),
        module=model_of(captured.modules),
        constraints=constraints,
        sharders=[sharder.make() for sharder in captured.sharders],
        usable_hbm=tuple(device.storage.hbm for device in left),
        usable_ddr=tuple(device.storage.ddr for device in left),
        memory="captured",
        assigned="",
        batch_size=captured.batch_size,
        kernels=frozenset(kernels),
        reservation=lambda: _ReplayedReservation(captured),
        live=captured,
    )


def _replayed_options(problem: EmbeddingProblem, captured: CapturedProblem) -> CapturedOptions:
    """Return the captured options, compared with those that the installed torchrec enumerates."""
    options = CapturedOptions(
        [(captured.fqn(option.module, option.table), option) for option in captured.options or ()],
        [(Storage(*row[:3]), Perf(*row[3:])) for row in captured.estimates],
    )
    enumerator = problem.enumerator(DistinctShardEnumerator)
    return options.compared(enumerator.enumerate(problem.module, problem.sharders))


class _ReplayedReservation(FixedPercentageStorageReservation):
    """A reservation that leaves the memory that the captured one left, or raises its error.

    With other machines or another batch size, which remedies have, the captured reservation is made
    again. The base class provides the percentage that torchrec's error messages contain.
    """

    def __init__(self, captured: CapturedProblem) -> None:
        super().__init__(percentage=0)
        self._captured = captured

    def reserve(self, topology: Any, batch_size: int, *model: Any, **more: Any) -> Any:
        """Return a copy of the topology with the memory left; raises torchrec's PlannerError."""
        captured = self._captured
        reservation, devices = captured.reservation, captured.topology.devices
        if device_runs(topology) != devices or batch_size != captured.batch_size:
            if reservation.obstacle:
                raise UsageError(f"its storage reservation {reservation.obstacle}")
            return reservation.make().reserve(topology, batch_size, *model, **more)
        if reservation.refused is not None:
            raise PlannerError(reservation.refused, PlannerErrorType.INSUFFICIENT_STORAGE)
        self._last_reserved_topology = captured.topology.make(reservation.left)
        return self._last_reserved_topology
