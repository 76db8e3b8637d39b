"""Problems of the IOPDDL contest: JSON text, which may be packed by gzip, and the best results."""

import gzip
import io
import zlib
from itertools import pairwise
from string import ascii_uppercase
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct

from harness.contract import UsageError, read_file
from planners.placement.problem import FORBIDDEN, Ints, PlacementProblem

_MOST_BYTES = 2**31

_Number = Annotated[int, Meta(ge=0, le=FORBIDDEN)]
_Pair = tuple[_Number, _Number]
_Rows = list[list[_Number]]


class _Nodes(Struct, frozen=True):
    intervals: list[_Pair]
    costs: _Rows
    usages: _Rows


class _Edges(Struct, frozen=True):
    nodes: list[_Pair]
    costs: _Rows


class _Problem(Struct, frozen=True):
    nodes: _Nodes
    edges: _Edges
    usage_limit: _Number
    name: str = ""


class _File(Struct, frozen=True):
    problem: _Problem


class _AnyFile(Struct, frozen=True):
    problem: msgspec.Raw


T = TypeVar("T")


def check_is_problem(path: str) -> None:
    """Raise UsageError for a file of another kind; reads no numbers."""
    _decoded(path, _AnyFile)


def _decoded(path: str, kind: type[T]) -> T:
    content = read_file(path)
    if path.endswith(".gz"):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
                content = file.read(_MOST_BYTES)
        except (OSError, EOFError, zlib.error):
            raise UsageError(f"{path} is no complete gzip file.") from None
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is no problem of the contest: {error}.") from None


def read_problem(path: str) -> PlacementProblem:
    """Return the problem in a file; raises UsageError if it is none."""
    read = _decoded(path, _File).problem
    first, cost = _flat(read.nodes.costs)
    of_usage, usage = _flat(read.nodes.usages)
    offset, pairs = _flat(read.edges.costs)
    intervals, edges = _columns(read.nodes.intervals), _columns(read.edges.nodes)
    made = PlacementProblem(
        name=read.name,
        first=first,
        cost=cost,
        usage=usage,
        start=intervals[0],
        end=intervals[1],
        tail=edges[0],
        head=edges[1],
        offset=offset,
        pairs=pairs,
        limit=read.usage_limit,
    )
    if len(intervals[0]) != len(first) - 1 or not np.array_equal(first, of_usage):
        raise UsageError(f"{path}: each node must have an interval, and a usage for each cost.")
    if not made.widths.all():
        raise UsageError(f"{path}: each node must have a state.")
    if len(edges[0]) != len(offset) - 1 or (np.maximum(*edges) >= made.nodes).any():
        raise UsageError(f"{path}: each edge must have a matrix, and nodes that exist.")
    if not np.array_equal(np.diff(offset), made.widths[edges[0]] * made.widths[edges[1]]):
        raise UsageError(f"{path}: the matrix of an edge must have a cost for each pair of states.")
    if (edges[0] == edges[1]).any():
        raise UsageError(f"{path}: an edge must connect two different nodes.")
    return made


def contest_form(problem: PlacementProblem) -> dict[str, Any]:
    """Return a problem as JSON types, in the form of the contest's files."""
    nodes = _Nodes(
        intervals=list(zip(problem.start.tolist(), problem.end.tolist(), strict=True)),
        costs=rows_of(problem.cost, problem.first),
        usages=rows_of(problem.usage, problem.first),
    )
    edges = _Edges(
        nodes=list(zip(problem.tail.tolist(), problem.head.tolist(), strict=True)),
        costs=rows_of(problem.pairs, problem.offset),
    )
    form = _File(_Problem(nodes, edges, problem.limit, problem.name))
    builtins: dict[str, Any] = msgspec.to_builtins(form)
    return builtins


def rows_of(numbers: Ints, begins: Ints) -> list[list[int]]:
    """Return the parts of an array as lists; each begins at one of `begins` but the last."""
    return [numbers[begin:end].tolist() for begin, end in pairwise(begins.tolist())]


def _flat(rows: _Rows) -> tuple[Ints, Ints]:
    """Return where each row begins, and all rows in one array."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    begins = np.concatenate([[0], np.cumsum(lengths)])
    numbers = (number for row in rows for number in row)
    return begins, np.fromiter(numbers, dtype=np.int64, count=begins[-1])


def _columns(pairs: list[_Pair]) -> Ints:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T.copy()


class Known(NamedTuple):
    """The lowest cost of the 20 teams and XLA, and the seconds that they had on eight cores."""

    cost: int
    seconds: int


# Of the problems A to Y, by the limit of the contest, five letters each.
_COSTS = {
    60: (6_548_641_531, 532_843, 84_102_445_260, 313_613_524_736, 338_965_335_230),
    120: (364_364_563_561, 217_039, 527_715_404_257, 583_706_456_444, 1_360_981_630_371),
    180: (2_274_276_676, 1_970_993_742, 49_928_460_991, 202_739_586_553, 222_880_199_765),
    240: (651_833_115_436, 526_776_842_042, 371_899_551_572, 1_534_613_444, 682_895_254_913),
    300: (2_569_342_178, 1_632_051, 11_818_845_467_155, 280_461_191_177, 621_176_568_278),
}
_KNOWN = [Known(cost, seconds) for seconds, costs in _COSTS.items() for cost in costs]
_BY_NAME = {
    f"asplos-2025-iopddl-{letter}": known
    for letter, known in zip(ascii_uppercase, _KNOWN, strict=False)
}


def best_known(name: str) -> Known | None:
    """Return the best known result of a contest's problem, None for other problems."""
    return _BY_NAME.get(name)
