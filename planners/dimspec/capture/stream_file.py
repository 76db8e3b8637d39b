"""Recorded streams of conversions in files, read with every value checked."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.contract import UsageError
from harness.contract.captured_file import read_captured
from harness.model.files import read_json
from planners.dimspec.conversion.partition import (
    MOST_MESH_AXES,
    Mesh,
    Partition,
    PartitionError,
    checked_partition,
)
from planners.dimspec.conversion.stream import Question, Recorded, Stream, is_possible

_ANSWER = ("path", "comms", "cost")
_PHASES = ("fwd", "bwd", "total")
_MOST_RANK = 8


def read_stream(
    path: Path,
    choose: Callable[[tuple[int, ...]], tuple[int, ...]] = lambda recorded: recorded,
    calls: int | None = None,
) -> Stream:
    """Read the first calls of a stream, all where `calls` is None, on the mesh that is chosen.

    `choose` is given the shape of the recorded mesh. On that mesh recorded answers are kept, if
    every query has one. On another one, calls whose partitions it does not divide or has no axis
    for are left out, and all answers; costs stay where it has as many axes.

    Raises:
        UsageError: the file cannot be read, or a value in it cannot be used; names file and query.
    """
    document = _Document(str(path), _parsed(path))
    recorded_on = document.mesh()
    chosen = choose(recorded_on.shape)
    if len(chosen) == len(recorded_on.shape):
        mesh = Mesh(chosen, recorded_on.alpha, recorded_on.beta)
    else:
        mesh = Mesh.of(*chosen)
    return document.stream(recorded_on, mesh, calls)


def read_mesh(path: Path) -> Mesh:
    """Return the mesh that a stream was recorded on.

    Raises:
        UsageError: the file cannot be read, or a value in it cannot be used.
    """
    return _Document(str(path), _parsed(path)).mesh()


def _parsed(path: Path) -> Mapping[str, Any]:
    held = read_json(path)
    return read_captured(path, "dimspec") if "shardbench" in held else held


class _Document:
    """A parsed file, whose values are taken out checked."""

    def __init__(self, file: str, held: Mapping[str, Any]) -> None:
        self._file = file
        self._held = held

    def _error(self, what: str) -> UsageError:
        return UsageError(f"{self._file}: {what}.")

    def _list(self, owner: Mapping[str, Any], key: str, where: str = "") -> list[Any]:
        value = owner.get(key)
        if not isinstance(value, list):
            raise self._error(f"{where}'{key}' must be a list")
        return value

    def mesh(self) -> Mesh:
        """Return the mesh that the stream was recorded on."""
        shape = self._list(self._held, "mesh_shape")
        if not 1 <= len(shape) <= MOST_MESH_AXES or not all(map(_is_size, shape)):
            raise self._error(
                f"'mesh_shape' must be a list of 1 to {MOST_MESH_AXES} whole numbers from 1 to 2^31"
            )
        costs = []
        for key in ("mesh_alpha", "mesh_beta"):
            values = self._list(self._held, key) if key in self._held else [1] * len(shape)
            if len(values) != len(shape) or not all(map(_is_cost, values)):
                raise self._error(f"'{key}' must have a number for each mesh axis")
            costs.append(tuple(map(float, values)))
        return Mesh(tuple(shape), *costs)

    def stream(self, recorded_on: Mesh, mesh: Mesh, calls: int | None) -> Stream:
        """Return the questions that are asked and their order, on a mesh."""
        queries = self._list(self._held, "queries")
        questions: dict[int, Question] = {}
        for index, query in enumerate(queries):
            asked = self._question(recorded_on, query, f"query {index}")
            if mesh == recorded_on:
                questions[index] = asked
            elif is_possible(mesh, asked):
                questions[index] = asked._replace(mesh=mesh)
        sequence = self._list(self._held, "sequence")
        for place, index in enumerate(sequence):
            if not _is_whole(index) or not 0 <= index < len(queries):
                raise self._error(
                    f"'sequence' must hold indices of the {len(queries)} queries, which its entry "
                    f"{place} is not"
                )
        sequence = sequence[:calls]
        kept = [index for index in sequence if index in questions]
        if not kept:
            why = (
                f"none of its conversions is possible on mesh {mesh}"
                if sequence
                else "it asks nothing"
            )
            raise self._error(why)
        recorded = {}
        if mesh == recorded_on and all(key in query for query in queries for key in _ANSWER):
            recorded = {
                index: self._recorded(query, f"query {index}: ")
                for index, query in enumerate(queries)
            }
        asked_for = sorted(set(kept))
        number = {index: position for position, index in enumerate(asked_for)}
        return Stream(
            tuple(questions[index] for index in asked_for),
            [number[index] for index in kept],
            tuple(recorded[index] for index in asked_for) if recorded else None,
            len(sequence) - len(kept) + self._left_out(),
        )

    def _left_out(self) -> int:
        """Return how many calls could not be written down where the stream was recorded."""
        left_out = self._held.get("left_out", 0)
        if not _is_whole(left_out) or not 0 <= left_out <= 2**53:
            raise self._error("'left_out' must be a whole number of at least 0")
        return int(left_out)

    def _question(self, mesh: Mesh, query: Any, where: str) -> Question:
        if not isinstance(query, dict):
            raise self._error(f"{where} must be an object")
        shape = self._list(query, "shape", f"{where}: ")
        if len(shape) > _MOST_RANK or not all(map(_is_size, shape)):
            raise self._error(
                f"{where}: 'shape' must be a list of at most {_MOST_RANK} whole numbers from 1 to "
                "2^31"
            )
        source, target = (
            self._partition(mesh, shape, self._list(query, key, f"{where}: "), f"{where}: '{key}'")
            for key in ("src", "dst")
        )
        return Question(mesh, tuple(shape), source, target)

    def _partition(self, mesh: Mesh, shape: list[int], pairs: list[Any], where: str) -> Partition:
        for pair in pairs:
            if not (
                isinstance(pair, list)
                and len(pair) == 2
                and _is_whole(pair[0])
                and isinstance(pair[1], list)
                and all(map(_is_whole, pair[1]))
            ):
                raise self._error(f"{where} must be a list of [dimension, [mesh axes]]")
        try:
            return checked_partition(mesh, shape, pairs)
        except PartitionError as error:
            raise self._error(f"{where.partition(':')[0]}: {str(error).rstrip('.')}") from None

    def _recorded(self, query: Mapping[str, Any], where: str) -> Recorded:
        path, patterns = (tuple(self._list(query, key, where)) for key in ("path", "comms"))
        if not all(isinstance(name, str) for name in (*path, *patterns)):
            raise self._error(f"{where}'path' and 'comms' must hold names")
        cost = query["cost"]
        if not isinstance(cost, dict) or not all(_is_cost(cost.get(phase)) for phase in _PHASES):
            raise self._error(f"{where}'cost' must have numbers for {', '.join(_PHASES)}")
        forward, backward, total = (float(cost[phase]) for phase in _PHASES)
        return Recorded(path, patterns, (forward, backward, total))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_size(value: Any) -> bool:
    return _is_whole(value) and 1 <= value <= 2**31


def _is_cost(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value) and value >= 0
    except OverflowError:  # a whole number beyond all floats
        return False
