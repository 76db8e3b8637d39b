"""The device that runs measured kernels, and the memory that a rank takes there."""

import ctypes
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode
from torchrec.distributed.embedding_types import EmbeddingComputeKernel

from harness.contract import UsageError, default_memory_gib
from planners.embedding.estimates.shard_work import ShardWork
from planners.embedding.tables.torchrec_objects import DTYPES

GIB = 2**30

FUSED = EmbeddingComputeKernel.FUSED.value
"""The kernel with tables in the device's memory; fbgemm has no other on a CPU."""

_TORCH_TYPES = {name: dtype for dtype, name in DTYPES.items()}
_WEIGHT = 0.01
_SMALL = 2**12  # numbers; smaller tensors are not shared
_APART = 64  # tables begin at multiples of this many numbers, as allocated ones do
_STATE_BYTES = 4  # optimizer state per row

# The largest memory of inputs and outputs that was observed on a CPU while a rank runs: bytes per
# index (with the buffers that sort it for the backward pass), per weighted index, and per number of
# the pooled vectors (with its gradient).
_INDEX_BYTES, _WEIGHTED_INDEX_BYTES, _OUTPUT_BYTES = 50, 62, 16

# The fractions of the memory for a rank; the reference and the process need some too.
_OF_MACHINE, _OF_CUDA = 0.15, 0.6
_MANAGED_OF_MACHINE = 0.5  # of host memory, where CUDA keeps managed tables

# Parameters of glibc's mallopt: how much is mapped separately, and how much is returned.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_KEEP = 2**31 - 1


class Device(TorchFunctionMode):
    """The device that runs kernels; ranks run one after the other and share memory for tables.

    Inside `with device:`, large tensors that `torch.zeros` makes, which are a rank's tables, use
    the memory of the previous rank's tables. This does not change the time of a kernel: it still
    accesses all rows of its rank, and its time does not depend on the values that another rank left
    there.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        if kind not in ("cpu", "cuda"):
            raise UsageError(f"--device must be cpu or cuda, not '{kind}'.")
        if kind == "cuda" and not torch.cuda.is_available():
            raise UsageError("--device cuda: torch finds no CUDA device on this machine.")
        if kind == "cpu":
            torch.set_num_threads(1)
            _keep_freed_memory()
        self.kind = kind
        # Numbers of each type: those that the largest rank has, and those of this rank so far.
        self._room: Counter[torch.dtype] = Counter()
        self._taken: Counter[torch.dtype] = Counter()
        self._pools: dict[torch.dtype, torch.Tensor] = {}

    @property
    def default_gib(self) -> float:
        """The default limit of the memory of one rank, in GiB."""
        if self.kind == "cuda":
            of_gpu = _OF_CUDA * float(torch.cuda.mem_get_info()[0]) / GIB
            return round(min(of_gpu, _MANAGED_OF_MACHINE * default_memory_gib()), 1)
        return round(_OF_MACHINE * default_memory_gib(), 1)

    @property
    def description(self) -> str:
        """The name of the device, for readers."""
        return str(torch.cuda.get_device_name()) if self.kind == "cuda" else "CPU, one thread"

    def synchronize(self) -> None:
        """Wait until all started kernels have finished."""
        if self.kind == "cuda":
            torch.cuda.synchronize()

    def make_room(self, ranks: Iterable[Sequence[ShardWork]]) -> None:
        """Set the size of the shared memory so that the tables of each of these ranks fit.

        Managed tables are not shared; fbgemm keeps their optimizer's state with the others'.
        """
        for shards in ranks:
            needed: Counter[torch.dtype] = Counter()
            for shard in shards:
                if shard.kernel == FUSED or self.kind == "cpu":
                    needed[_TORCH_TYPES[shard.dtype]] += shard.rows * shard.columns + _APART
                needed[torch.float32] += shard.rows + _APART
            self._room |= needed  # the larger number of each type

    def __enter__(self) -> Self:
        self._taken.clear()
        super().__enter__()
        return self

    def __torch_function__(  # torch's own
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        dtype = named.get("dtype") or torch.float32
        # Managed memory comes as `out`; a cache has two sizes.
        if func is not torch.zeros or len(args) != 1 or "out" in named:
            return func(*args, **named)
        (size,), place = args, torch.device(named.get("device") or "cpu")
        if not isinstance(size, int) or size <= _SMALL or not dtype.is_floating_point:
            return func(*args, **named)
        start = -(-self._taken[dtype] // _APART) * _APART
        if place.type != self.kind or start + size > self._room[dtype]:
            return torch.full((size,), _WEIGHT, dtype=dtype, device=place)
        if dtype not in self._pools:
            room = self._room[dtype]
            self._pools[dtype] = torch.full((room,), _WEIGHT, dtype=dtype, device=place)
        self._taken[dtype] = start + size
        return self._pools[dtype][start : start + size]


def _keep_freed_memory() -> None:
    """Make glibc keep freed memory, as torch does on CUDA.

    Otherwise each call maps memory for its outputs again, which takes longer than kernels of small
    tables. A training job does not do that after its first step.
    """
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, _KEEP)


def rows_that_fit(ranks: Sequence[Sequence[ShardWork]], gib: float) -> int:
    """Return the largest limit on a shard's rows with which every rank fits into `gib` GiB.

    Raises UsageError if the lookups of a rank alone do not fit.
    """
    # An upper estimate of the bytes of each rank's inputs and outputs while it runs.
    inputs = [
        sum(
            (_WEIGHTED_INDEX_BYTES if shard.is_weighted else _INDEX_BYTES) * shard.indices
            + _OUTPUT_BYTES * shard.outputs * shard.columns
            for shard in rank
        )
        for rank in ranks
    ]
    if max(inputs) >= gib * GIB:
        raise UsageError(
            f"The lookups of a rank take {max(inputs) / GIB:.2g} GiB, and its tables more; "
            f"--gib allows {gib:g}. Give it more, or measure a smaller batch."
        )

    def is_too_large(rows: int) -> bool:
        return any(
            taken + sum(min(s.rows, rows) * (s.row_bytes + _STATE_BYTES) for s in rank) > gib * GIB
            for taken, rank in zip(inputs, ranks, strict=True)
        )

    most = max(shard.rows for rank in ranks for shard in rank)
    return 1 + bisect(range(2, most + 1), False, key=is_too_large)
