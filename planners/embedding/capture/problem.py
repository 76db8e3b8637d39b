"""The planning problem of a captured file, on its own machines or on others."""

import logging
from dataclasses import replace

from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner import types as torchrec_types
from torchrec.distributed.planner.types import PlannerError

from harness.contract import Topology, UsageError
from harness.model.topology import CAPTURED
from planners.embedding.capture.fields import Malformed
from planners.embedding.capture.file import Captured, read_problem
from planners.embedding.capture.modules import CapturedTable
from planners.embedding.problem import EmbeddingProblem, torchrec_topology
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.tables import Table


def build_captured(path: str, machines: Topology) -> EmbeddingProblem:
    """Build the problem of a captured file, on the machines `captured` as the live planner had it.

    On others, the options and their estimates are those that torchrec comes to there, and as much
    is reserved as the live planner's own reservation reserves there.

    Raises:
        UsageError: the file cannot be used, or not with the installed torchrec, or not on machines
            that are not its own.
    """
    captured = read_problem(path)
    logging.getLogger().addFilter(_is_worth_saying)
    try:
        problem = _problem(captured, captured.topology.make())
    except Malformed as error:
        raise UsageError(f"{path} is damaged: {error}.") from None
    problem = _with_options(problem, captured, path)
    if machines.name == CAPTURED:
        return problem
    return _moved(problem, captured, machines, path)


def _is_worth_saying(record: logging.LogRecord) -> bool:
    """Leave out what torchrec says in every plan of each data-parallel table: it has no spec."""
    return not str(record.msg).startswith("Sharding spec not found for")


def _problem(captured: Captured, topology: torchrec_types.Topology) -> EmbeddingProblem:
    placed = [
        (module.path, table)
        for module in captured.modules
        for table in module.tables
        if _is_placed(captured, table, topology.compute_device)
    ]
    left = captured.left or captured.topology.devices
    kernels = (
        {option.compute_kernel for option in captured.options.options}
        if captured.options
        else {kernel.value for kernel in EmbeddingComputeKernel}
    )
    return EmbeddingProblem(
        tables=tuple(_table(table, captured) for _, table in placed),
        paths=tuple(path for path, _ in placed),
        topology=topology,
        module=captured.model(),
        constraints=dict(captured.constraints),
        sharders=[sharder.make() for sharder in captured.sharders],
        usable_hbm=tuple(storage.hbm for storage in left),
        usable_ddr=tuple(storage.ddr for storage in left),
        memory="captured",
        assigned="",
        batch_size=captured.batch_size,
        kernels=frozenset(kernels),
        reservation=captured.reserved,
        live=captured.live,
    )


def _is_placed(captured: Captured, table: CapturedTable, device: str) -> bool:
    """Whether a table is placed by this planner, and not by one for another kind of device."""
    held = captured.constraints.get(table.name)
    return held is None or held.device_group in (None, "", device)


def _table(table: CapturedTable, captured: Captured) -> Table:
    held = captured.constraints.get(table.name)
    factors = (
        held.pooling_factors if held else torchrec_types.ParameterConstraints().pooling_factors
    )
    return Table(
        name=table.name,
        rows=table.rows,
        dim=table.dim,
        pooling_factors=tuple(float(factor) for factor in factors),
        dtype=table.dtype,
    )


def _with_options(problem: EmbeddingProblem, captured: Captured, path: str) -> EmbeddingProblem:
    """Return the problem with the live planner's options, if it came to have any."""

    if captured.options is None:
        return problem
    try:
        enumerated = problem.enumerator(DistinctShardEnumerator).enumerate(
            problem.module, problem.sharders
        )
        return replace(problem, options=captured.options.compared(enumerated))
    except UsageError as error:
        raise UsageError(f"{path} cannot be planned again: {error}") from None
    except Exception as error:  # torchrec raises any of its own, and so do its asserts
        raise UsageError(
            f"{path} cannot be planned again, as torchrec refuses it: {type(error).__name__}: "
            f"{' '.join(str(error).split())[:300].rstrip('.')}."
        ) from None


def _moved(
    problem: EmbeddingProblem, captured: Captured, machines: Topology, path: str
) -> EmbeddingProblem:

    if problem.options is not None and problem.options.fed:
        raise UsageError(
            f"{path} can only be planned for the machines that it was captured on: its estimates "
            "are not those of the installed torchrec."
        )
    if captured.reservation.obstacle:
        raise UsageError(
            f"{path} can only be planned for the machines that it was captured on: its storage "
            f"reservation {captured.reservation.obstacle}."
        )
    topology = torchrec_topology(machines)
    moved = replace(
        problem,
        topology=topology,
        memory="captured, moved",
        reservation=captured.reservation.reservation,
        options=None,
        live=None,
        known={},
    )
    try:
        left = moved.storage_reservation().reserve(
            topology, moved.batch_size, moved.module, moved.sharders, moved.constraints
        )
    except PlannerError:  # less than nothing is left, as every variant will find
        return moved
    return replace(
        moved,
        usable_hbm=tuple(device.storage.hbm for device in left.devices),
        usable_ddr=tuple(device.storage.ddr for device in left.devices),
    )
