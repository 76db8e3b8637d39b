"""Read files of recorded conversions, and define their format."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from harness.contract import UsageError, checked, read_captured, read_json
from planners.dimspec.conversion.costs import Cost
from planners.dimspec.conversion.partition import (
    MOST_MESH_AXES,
    Mesh,
    Partition,
    PartitionError,
    checked_partition,
)
from planners.dimspec.conversion.stream import Query, RecordedAnswer, Stream, is_possible

_LARGEST_FLOAT = 1.7976931348623157e308

Size = Annotated[int, Meta(ge=1, le=2**31)]
CostUnits = Annotated[float, Meta(ge=0, le=_LARGEST_FLOAT)]


class RecordedMesh(Struct, frozen=True, kw_only=True):
    """The mesh of a recording; latencies or costs that the file omits are 1."""

    mesh_shape: Annotated[tuple[Size, ...], Meta(min_length=1, max_length=MOST_MESH_AXES)]
    mesh_alpha: tuple[CostUnits, ...] | UnsetType = UNSET
    mesh_beta: tuple[CostUnits, ...] | UnsetType = UNSET

    def __post_init__(self) -> None:
        mesh = self.mesh()
        if not len(mesh.shape) == len(mesh.alpha) == len(mesh.beta):
            raise ValueError("`mesh_alpha` and `mesh_beta` must have a number for each mesh axis")

    def mesh(self) -> Mesh:
        """Return the mesh with its costs."""
        ones = (1.0,) * len(self.mesh_shape)
        alpha, beta = (ones if c is UNSET else c for c in (self.mesh_alpha, self.mesh_beta))
        return Mesh(self.mesh_shape, alpha, beta)


class CostRecord(Struct, frozen=True):
    """The cost of a conversion's forward pass, backward pass and both, in cost units."""

    fwd: CostUnits
    bwd: CostUnits
    total: CostUnits


class QueryRecord(Struct, frozen=True):
    """A recorded query, and ColossalAI's answer: names of specs and patterns, and the cost."""

    shape: Annotated[tuple[Size, ...], Meta(max_length=8)]
    src: Partition
    dst: Partition
    path: tuple[str, ...] | UnsetType = UNSET
    comms: tuple[str, ...] | UnsetType = UNSET
    cost: CostRecord | UnsetType = UNSET

    def query(self, mesh: Mesh) -> Query:
        """Return the query; raises PartitionError for an invalid source or target."""
        source, target = (checked_partition(mesh, self.shape, end) for end in (self.src, self.dst))
        return Query(mesh, self.shape, source, target)

    def answer(self) -> RecordedAnswer | None:
        """Return the answer, or None if the file lacks a part of it."""
        if self.path is UNSET or self.comms is UNSET or self.cost is UNSET:
            return None
        cost = Cost(self.cost.fwd, self.cost.bwd, self.cost.total)
        return RecordedAnswer(self.path, self.comms, cost)


class StreamRecord(RecordedMesh, frozen=True, kw_only=True):
    """A whole file: distinct queries, the calls as query indices, and the calls left out."""

    queries: tuple[QueryRecord, ...]
    sequence: list[Annotated[int, Meta(ge=0)]]
    left_out: Annotated[int, Meta(ge=0, le=2**53)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if max(self.sequence, default=-1) >= len(self.queries):
            raise ValueError(f"`sequence` must hold indices of the {len(self.queries)} queries")


Kind = TypeVar("Kind", bound=RecordedMesh)


def _read(path: Path, kind: type[Kind]) -> Kind:
    held = read_json(path)
    if "shardbench" in held:
        held = read_captured(path, "dimspec")
    return checked(held, kind, str(path))


def read_mesh(path: Path) -> Mesh:
    """Return the mesh that a file was recorded on; raises UsageError for an invalid file."""
    return _read(path, RecordedMesh).mesh()


def read_stream(
    path: Path,
    choose: Callable[[tuple[int, ...]], tuple[int, ...]] = lambda recorded: recorded,
    calls: int | None = None,
) -> Stream:
    """Return the stream of the first `calls` calls in a file (all for None), on a chosen mesh.

    `choose` maps the shape of the recorded mesh to the shape to use. On the recorded mesh, the
    stream has the recorded answers if every query has one. On another mesh it has none, and lacks
    the calls that do not fit the mesh. The mesh has the recorded costs if the number of axes is
    equal. Raises UsageError for an invalid file or if no call is left.
    """
    record = _read(path, StreamRecord)
    recorded_on = record.mesh()
    chosen = choose(recorded_on.shape)
    mesh = Mesh.of(*chosen)
    if len(chosen) == len(recorded_on.shape):
        mesh = Mesh(chosen, recorded_on.alpha, recorded_on.beta)
    possible: dict[int, Query] = {}
    for index, recorded in enumerate(record.queries):
        try:
            query = recorded.query(recorded_on)
        except PartitionError as error:
            raise UsageError(f"{path}: query {index}: {error}") from None
        if is_possible(mesh, query):
            possible[index] = query._replace(mesh=mesh)
    sequence = record.sequence[:calls]
    kept = [index for index in sequence if index in possible]
    if not kept:
        why = (
            f"none of its conversions is possible on mesh {mesh}" if sequence else "it asks nothing"
        )
        raise UsageError(f"{path}: {why}.")
    number = {index: position for position, index in enumerate(sorted(set(kept)))}
    answers = [answer for query_record in record.queries if (answer := query_record.answer())]
    is_answered = mesh == recorded_on and len(answers) == len(record.queries)
    return Stream(
        tuple(possible[index] for index in number),
        [number[index] for index in kept],
        tuple(answers[index] for index in number) if is_answered else None,
        len(sequence) - len(kept) + record.left_out,
    )
