"""The device that kernels run on, and how much of its memory a rank takes."""

import ctypes
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from harness.contract import UsageError, default_memory_gib
from planners.embedding.calibration.shards import ShardWork

GIB = 2**30

_WEIGHT = 0.01
_SMALL = 2**12  # numbers; what is less is made anew
_APART = 64  # tables begin at multiples of so many numbers, as allocated ones do
_STATE_BYTES = 4  # of the optimizer, for each row

# What inputs and outputs take at most while a rank runs, seen on a CPU: an index beside what sorts
# it for the backward pass, its weight, and a number of the pooled vectors beside its gradient.
_INDEX_BYTES, _WEIGHTED_INDEX_BYTES, _OUTPUT_BYTES = 50, 62, 16

# The parts of the memory that there is for a rank: beside it are the reference and the process.
_OF_MACHINE, _OF_CUDA = 0.15, 0.6

# mallopt's names in glibc: how much is mapped by itself, and what is given back to the system.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_KEEP = 2**31 - 1


class Device:
    """What kernels run on. Ranks run one after the other, and share the memory of their tables.

    Sharing changes no kernel: each still reads and writes as many rows as its rank has, and what
    another one left in them makes no difference to how long that takes.
    """

    def __init__(self, kind: str) -> None:
        if kind not in ("cpu", "cuda"):
            raise UsageError(f"--device must be cpu or cuda, not '{kind}'.")
        if kind == "cuda" and not torch.cuda.is_available():
            raise UsageError("--device cuda: torch finds no CUDA device on this machine.")
        if kind == "cpu":
            torch.set_num_threads(1)
            _keep_freed_memory()
        self.kind = kind
        self._room: dict[torch.dtype, int] = {}  # numbers of each type that the largest rank has
        self._pools: dict[torch.dtype, torch.Tensor] = {}
        self._taken: Counter[torch.dtype] = Counter()

    @property
    def torch_device(self) -> torch.device:
        """Torch's name of it."""
        return torch.device(self.kind)

    @property
    def default_gib(self) -> float:
        """GiB that a rank may take where nothing is asked for."""
        if self.kind == "cuda":
            return round(_OF_CUDA * float(torch.cuda.mem_get_info()[0]) / GIB, 1)
        return round(_OF_MACHINE * default_memory_gib(), 1)

    def described(self) -> str:
        """Say what it is."""
        if self.kind == "cuda":
            return str(torch.cuda.get_device_name())
        return "CPU, one thread"

    def synchronize(self) -> None:
        """Wait until all that was started has ended."""
        if self.kind == "cuda":
            torch.cuda.synchronize()

    def make_room(self, ranks: Iterable[Sequence[ShardWork]]) -> None:
        """Have memory for the tables of the largest of these ranks, which all of them share."""
        for shards in ranks:
            needed: Counter[torch.dtype] = Counter()
            for shard in shards:
                needed[getattr(torch, shard.dtype)] += shard.rows * shard.columns + _APART
                needed[torch.float32] += shard.rows + _APART
            for dtype, size in needed.items():
                self._room[dtype] = max(self._room.get(dtype, 0), size)

    def begin_rank(self) -> None:
        """Have the next tables lie where those of the rank before lay."""
        self._taken.clear()

    def tables(self, size: int, dtype: torch.dtype, place: torch.device) -> torch.Tensor:
        """Return memory for tables, which was written once; other ranks have it too."""
        start = -(-self._taken[dtype] // _APART) * _APART
        if place.type != self.kind or start + size > self._room.get(dtype, 0):
            return torch.full((size,), _WEIGHT, dtype=dtype, device=place)
        if dtype not in self._pools:
            room = self._room[dtype]
            self._pools[dtype] = torch.full((room,), _WEIGHT, dtype=dtype, device=place)
        self._taken[dtype] = start + size
        return self._pools[dtype][start : start + size]


def _keep_freed_memory() -> None:
    """Have glibc keep what is freed, as torch does on CUDA and a training job after its first step.

    Else each call maps its outputs anew, which takes longer than the kernels of small tables.
    """
    _mallopt(_M_MMAP_MAX, 0)
    _mallopt(_M_TRIM_THRESHOLD, _KEEP)


def _mallopt(parameter: int, value: int) -> None:
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").mallopt(parameter, value)


class SharedTables(TorchFunctionMode):
    """Has large tensors of zeros be memory that ranks share, and not be written anew."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(  # torch's own
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        size, dtype = args[0] if args else None, named.get("dtype") or torch.float32
        if func is not torch.zeros or not isinstance(size, int) or size <= _SMALL:
            return func(*args, **named)
        if not dtype.is_floating_point:
            return func(*args, **named)
        return self._device.tables(size, dtype, torch.device(named.get("device") or "cpu"))


def rows_that_fit(ranks: Sequence[Sequence[ShardWork]], gib: float) -> int:
    """Return the most rows of a shard with which every rank fits into so many GiB.

    Raises UsageError where the lookups of a rank alone do not.
    """
    inputs = [sum(map(_input_bytes, rank)) for rank in ranks]
    if max(inputs, default=0.0) >= gib * GIB:
        raise UsageError(
            f"The lookups of a rank take {max(inputs) / GIB:.2g} GiB, and its tables more; "
            f"--memory allows {gib:g}. Give it more, or measure a smaller batch."
        )

    def fits(rows: int) -> bool:
        return all(
            taken + sum(_table_bytes(shard, rows) for shard in rank) <= gib * GIB
            for taken, rank in zip(inputs, ranks, strict=True)
        )

    most = max((shard.rows for rank in ranks for shard in rank), default=1)
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _table_bytes(shard: ShardWork, rows: int) -> int:
    return min(shard.rows, rows) * (shard.columns * shard.item_bytes + _STATE_BYTES)


def _input_bytes(shard: ShardWork) -> float:
    """Return the most bytes that the inputs and outputs of a shard take while it runs."""
    index = _WEIGHTED_INDEX_BYTES if shard.is_weighted else _INDEX_BYTES
    return index * shard.indices + _OUTPUT_BYTES * shard.outputs * shard.columns
