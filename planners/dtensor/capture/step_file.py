"""Captured steps in files, read with every value checked; nothing here needs torch.

A step is a list of distinct calls and the order in which they are made. What a call is given and
what torch made of it refer to the file's lists of meshes, tensors and results by index.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from harness.contract import UsageError
from harness.contract.captured_file import read_captured

MOST_CALLS = 2_000_000
MOST_SIZE = 2**40
MOST_ELEMENTS = 2**50
MOST_TEXT = 100

_MOST_RANKS = 2**17
_MOST_MESHES = 64
_MOST_RANK = 32
_MOST_MESH_DIMS = 8
_MOST_DEPTH = 4
_OP = re.compile(r"\w+\.\w+\.\w+", re.ASCII)
_NAME = re.compile(r"\w+", re.ASCII)
_PARTIAL = ("sum", "avg", "product", "max", "min")
_NUMBERS = ("int", "float")
_ODD_FLOATS = ("inf", "-inf", "nan")
_OBJECTS = ("dtype", "layout", "memory_format", "device")


@dataclass(frozen=True, slots=True)
class MeshForm:
    """A mesh of rank 0: its shape, the distance in ranks along each dimension, their names."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    names: tuple[str, ...] | None

    def __str__(self) -> str:
        return " x ".join(map(str, self.shape))


@dataclass(frozen=True, slots=True)
class TensorForm:
    """A DTensor by the index of its mesh, its placements, and its global shape (elements)."""

    mesh: int
    placements: tuple[tuple[Any, ...], ...]
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    requires_grad: bool


@dataclass(frozen=True, slots=True)
class Call:
    """An op, its arguments as the file has them, its results by index, and the inputs it moved.

    A move is the placements of an input before and after, as texts.
    """

    op: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[int, ...]
    moves: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What was recorded.

    Attributes:
        ranks: of the world that it ran in.
        ranks_per_host: as torch counted them there, for its model of what collectives cost.
        results: placements, global shape, stride and type of the distinct results.
        sequence: calls by index, in the order in which they were made.
        left_out: how many calls are not in the file, by reason.
    """

    ranks: int
    ranks_per_host: int
    meshes: tuple[MeshForm, ...]
    tensors: tuple[TensorForm, ...]
    results: tuple[Mapping[str, Any], ...]
    calls: tuple[Call, ...]
    sequence: tuple[int, ...]
    left_out: Mapping[str, int]


def read_step(path: Path) -> Step:
    """Read a captured step.

    Raises:
        UsageError: the file cannot be read, or a value in it cannot be used.
    """
    return _Document(str(path), read_captured(path, "dtensor")).step()


class _Document:
    """The content of a file, whose values are taken out checked."""

    def __init__(self, file: str, held: Mapping[str, Any]) -> None:
        self._file = file
        self._held = held

    def step(self) -> Step:
        """Return all of it."""
        ranks = self._whole(self._held.get("ranks"), "'ranks'", 1, _MOST_RANKS)
        per_host = self._whole(self._held.get("ranks_per_host"), "'ranks_per_host'", 1, _MOST_RANKS)
        meshes = tuple(
            self._mesh(each, where, ranks) for where, each in self._objects("meshes", _MOST_MESHES)
        )
        tensors = tuple(
            self._tensor(each, where, meshes)
            for where, each in self._objects("tensors", MOST_CALLS)
        )
        results = tuple(
            self._result(each, where) for where, each in self._objects("results", MOST_CALLS)
        )
        calls = tuple(
            self._call(each, where, len(tensors), len(results))
            for where, each in self._objects("calls", MOST_CALLS)
        )
        sequence = self._list(self._held, "sequence", "", MOST_CALLS)
        for place, index in enumerate(sequence):
            self._whole(index, f"entry {place} of 'sequence'", 0, len(calls) - 1)
        if not sequence:
            raise self._error("it holds no calls")
        return Step(
            ranks, per_host, meshes, tensors, results, calls, tuple(sequence), self._left_out()
        )

    def _error(self, what: str) -> UsageError:
        return UsageError(f"{self._file}: {what}.")

    def _whole(self, value: Any, what: str, least: int, most: int) -> int:
        if not (_is_whole(value) and least <= value <= most):
            raise self._error(f"{what} must be a whole number from {least} to {most:,}")
        return int(value)

    def _list(self, owner: Mapping[str, Any], key: str, where: str, most: int) -> list[Any]:
        value = owner.get(key)
        if not isinstance(value, list) or len(value) > most:
            raise self._error(f"{where}'{key}' must be a list of at most {most:,} entries")
        return value

    def _objects(self, key: str, most: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for index, each in enumerate(self._list(self._held, key, "", most)):
            if not isinstance(each, dict):
                raise self._error(f"entry {index} of '{key}' must be an object")
            yield f"entry {index} of '{key}': ", each

    def _sizes(
        self, owner: Mapping[str, Any], key: str, where: str, least: int, most: int = MOST_SIZE
    ) -> tuple[int, ...]:
        sizes = self._list(owner, key, where, _MOST_RANK)
        if not all(_is_whole(size) and least <= size <= most for size in sizes):
            raise self._error(f"{where}'{key}' must hold whole numbers from {least} to {most:,}")
        return tuple(sizes)

    def _mesh(self, held: Mapping[str, Any], where: str, ranks: int) -> MeshForm:
        shape = self._sizes(held, "shape", where, 1, ranks)
        strides = self._sizes(held, "strides", where, 1, ranks)
        if not 1 <= len(shape) == len(strides) <= _MOST_MESH_DIMS:
            raise self._error(
                f"{where}'shape' and 'strides' must have an entry for each of 1 to "
                f"{_MOST_MESH_DIMS} dimensions"
            )
        # Dimensions from the innermost: each begins where the ranks of the one before end.
        reached = 1
        for stride, size in sorted(zip(strides, shape, strict=True)):
            if size > 1 and stride < reached:
                raise self._error(f"{where}it must hold no rank twice")
            reached = max(reached, stride * (size - 1) + reached)
        if reached > ranks:
            raise self._error(f"{where}it must have no more ranks than the world, {ranks}")
        names = held.get("names")
        if names is None:
            return MeshForm(shape, strides, None)
        named = self._list(held, "names", where, len(shape))
        if len(set(map(str, named))) != len(shape) or not all(map(_is_text, named)):
            raise self._error(f"{where}'names' must name each dimension of the mesh once")
        return MeshForm(shape, strides, tuple(named))

    def _layout(
        self, held: Mapping[str, Any], where: str
    ) -> tuple[tuple[int, ...], tuple[int, ...], str]:
        shape = self._sizes(held, "shape", where, 0)
        stride = self._sizes(held, "stride", where, 0, MOST_ELEMENTS)
        if len(stride) != len(shape):
            raise self._error(f"{where}'stride' must have an entry for each dimension of 'shape'")
        reach = sum(max(size - 1, 0) * step for size, step in zip(shape, stride, strict=True))
        if math.prod(shape) > MOST_ELEMENTS or reach > MOST_ELEMENTS:
            raise self._error(f"{where}it must have at most {MOST_ELEMENTS:,} elements")
        dtype = held.get("dtype")
        if not (_is_text(dtype) and _NAME.fullmatch(dtype)):
            raise self._error(f"{where}'dtype' must name a type of torch")
        return shape, stride, dtype

    def _tensor(
        self, held: Mapping[str, Any], where: str, meshes: tuple[MeshForm, ...]
    ) -> TensorForm:
        mesh = self._whole(held.get("mesh"), f"{where}'mesh'", 0, len(meshes) - 1)
        ndim = len(meshes[mesh].shape)
        shape, stride, dtype = self._layout(held, where)
        placements = self._list(held, "placements", where, ndim)
        if len(placements) != ndim or not all(_is_placement(p, len(shape)) for p in placements):
            raise self._error(
                f"{where}'placements' must have one for each mesh dimension: [\"replicate\"], "
                '["shard", dimension], ["strided", dimension, factor], ["partial", '
                '"sum"] or ["norm", number]'
            )
        requires_grad = held.get("requires_grad")
        if not isinstance(requires_grad, bool):
            raise self._error(f"{where}'requires_grad' must be true or false")
        return TensorForm(mesh, tuple(map(tuple, placements)), shape, stride, dtype, requires_grad)

    def _result(self, held: Mapping[str, Any], where: str) -> Mapping[str, Any]:
        shape, stride, dtype = self._layout(held, where)
        placements = held.get("placements")
        if placements is not None and not _are_texts(placements):
            raise self._error(f"{where}'placements' must be null or a list of texts")
        return {
            "placements": placements,
            "shape": list(shape),
            "stride": list(stride),
            "dtype": dtype,
        }

    def _call(self, held: Mapping[str, Any], where: str, tensors: int, results: int) -> Call:
        op = held.get("op")
        if not (_is_text(op) and _OP.fullmatch(op)):
            raise self._error(f"{where}'op' must be namespace.name.overload")
        args = self._list(held, "args", where, MOST_CALLS)
        kwargs = held.get("kwargs")
        if not isinstance(kwargs, dict) or len(kwargs) > MOST_TEXT:
            raise self._error(f"{where}'kwargs' must be an object")
        for value in (*args, *kwargs.values()):
            self._check_value(value, where, tensors)
        made = self._list(held, "results", where, MOST_CALLS)
        for index in made:
            self._whole(index, f"{where}a result", 0, results - 1)
        moves = self._list(held, "moves", where, MOST_CALLS)
        if not all(
            isinstance(move, list) and len(move) == 2 and all(map(_are_texts, move))
            for move in moves
        ):
            raise self._error(f"{where}'moves' must hold pairs of lists of placements")
        return Call(op, tuple(args), kwargs, tuple(made), tuple(moves))

    def _check_value(self, value: Any, where: str, tensors: int, depth: int = 0) -> None:
        if isinstance(value, list) and depth < _MOST_DEPTH:
            for each in value:
                self._check_value(each, where, tensors, depth + 1)
        elif isinstance(value, dict):
            self._check_object(value, where, tensors)
        elif not (
            value is None
            or isinstance(value, bool)
            or (_is_whole(value) and abs(value) < 2**63)
            or (isinstance(value, float) and math.isfinite(value))
            or _is_text(value)
        ):
            raise self._error(f"{where}an argument is none that can be written")

    def _check_object(self, value: Mapping[str, Any], where: str, tensors: int) -> None:
        kind, what = next(iter(value.items()), ("", None))
        match kind, what:
            case "tensor", int():
                self._whole(what, f"{where}a tensor", 0, tensors - 1)
            case "local", dict():
                self._layout(what, where)
            case "number", str() if what in _NUMBERS:
                self._whole(value.get("index"), f"{where}the index of a number", 0, MOST_CALLS)
            case "float", str() if what in _ODD_FLOATS:
                pass
            case str(), str() if kind in _OBJECTS and _NAME.fullmatch(what):
                pass
            case _:
                raise self._error(f"{where}an argument is none that can be written")

    def _left_out(self) -> Mapping[str, int]:
        left_out = self._held.get("left_out", {})
        if not isinstance(left_out, dict) or not all(
            _is_text(why) and _is_whole(count) and count >= 0 for why, count in left_out.items()
        ):
            raise self._error("'left_out' must be an object of counts")
        return left_out


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= MOST_TEXT and value.isprintable()


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_placement(value: Any, rank: int) -> bool:
    match value:
        case ["replicate"]:
            return True
        case ["shard", dim]:
            return _is_whole(dim) and 0 <= dim < rank
        case ["strided", dim, factor]:
            return _is_whole(dim) and 0 <= dim < rank and _is_whole(factor) and 1 <= factor < 2**20
        case ["partial", str(op)]:
            return op in _PARTIAL
        case ["norm", norm]:
            return isinstance(norm, int | float) and not isinstance(norm, bool) and 0 < norm < 1e6
    return False
