"""Runs the kernels that TorchRec creates for a rank's shards, on one device of this machine."""

import ctypes
import math
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from torch.overrides import TorchFunctionMode
from torchrec.distributed.embedding_sharding import group_tables
from torchrec.distributed.embedding_types import (
    EmbeddingComputeKernel,
    GroupedEmbeddingConfig,
    ShardedEmbeddingTable,
    compute_kernel_to_embedding_location,
)
from torchrec.modules.embedding_configs import data_type_to_sparse_type

from harness.contract import Prepared, UsageError, default_memory_gib
from planners.embedding.estimates.shard_work import (
    CACHING,
    Ints,
    LookupDistribution,
    ShardWork,
    work_key,
)
from planners.embedding.tables.torchrec_objects import DATA_TYPES, DTYPES

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

_MOST_FILLING = 200  # batches that fill a cache of rows


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
            # glibc keeps freed memory, as torch does on CUDA, and as a training job does after its
            # first step. Else each call maps memory for its outputs again, which takes longer than
            # kernels of small tables.
            with suppress(OSError, AttributeError):  # another C library
                mallopt = ctypes.CDLL("libc.so.6").mallopt
                mallopt(_M_MMAP_MAX, 0)
                mallopt(_M_TRIM_THRESHOLD, _KEEP)
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


class _Lookup(NamedTuple):
    """A table-batched fbgemm kernel with its inputs; `weights` is None unless it is weighted.

    `drawn` has, for each feature, the rows of its table and the number of its indices.
    """

    kernel: Any
    indices: torch.Tensor
    offsets: torch.Tensor
    weights: torch.Tensor | None
    drawn: Sequence[tuple[int, int]]
    is_cached: bool


class RankKernels:
    """The kernels of one rank, with random inputs for one iteration.

    Kernels with a cache of rows get other rows in each iteration, and start with a full cache. With
    the same rows again, every lookup would find its row in the cache.
    """

    def __init__(
        self,
        shards: Sequence[ShardWork],
        device: Device,
        distribution: LookupDistribution,
        seed: int,
    ) -> None:
        self._device, self._distribution = device, distribution
        self._rng = np.random.default_rng([seed, int(work_key(shards), 16)])
        groups: defaultdict[tuple[str, str, bool], list[ShardWork]] = defaultdict(list)
        for shard in shards:
            groups[shard.group].append(shard)
        with device:
            self._lookups = [
                self._lookup(config, members)
                for members in groups.values()
                for config in group_tables([[*map(_table, members, range(len(members)))]])[0]
            ]
        self._outputs: list[torch.Tensor] = []
        self.forward()
        for _ in range(max(map(_batches_to_fill, self._lookups), default=0)):
            self._renewed_forward()
        self._gradients = [torch.rand_like(output) for output in self._outputs]

    def _lookup(self, config: GroupedEmbeddingConfig, shards: Sequence[ShardWork]) -> _Lookup:
        place = torch.device(self._device.kind)
        lengths, drawn = [], []
        for table in config.embedding_tables:
            shard = shards[int(table.name)]
            for mean in shard.lookups:
                lengths.append(self._lengths(mean, shard))
                drawn.append((shard.rows, int(lengths[-1].sum())))
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
        indices = self._draw(drawn)
        return _Lookup(
            _kernel(config, self._device.kind),
            indices.to(place),
            torch.from_numpy(offsets).to(place),
            torch.rand(len(indices), device=place) if config.is_weighted else None,
            drawn,
            any(shard.kernel == CACHING for shard in shards),
        )

    def _draw(self, drawn: Sequence[tuple[int, int]]) -> torch.Tensor:
        """Return random indices, as many of each table as `drawn` has."""
        parts = [self._distribution.draw(rows, count, self._rng) for rows, count in drawn]
        return torch.from_numpy(np.concatenate(parts))

    def _lengths(self, mean: float, shard: ShardWork) -> Ints:
        """Return the random number of indices of each sample that reach the shard.

        The table's mean number is rounded up or down at random. A binomially distributed part of
        these indices falls into the shard's rows.
        """
        of_table = mean / shard.share if shard.share else 0.0
        whole = np.floor(of_table + self._rng.random(shard.samples)).astype(np.int64)
        return self._rng.binomial(whole, shard.share)

    def forward(self) -> None:
        """Run the forward pass: look up rows and pool them."""
        self._outputs = [
            lookup.kernel(lookup.indices, lookup.offsets, lookup.weights)
            for lookup in self._lookups
        ]
        self._device.synchronize()

    def backward(self) -> None:
        """Run the backward pass of the last forward pass, which also updates the tables."""
        for output, gradient in zip(self._outputs, self._gradients, strict=True):
            output.backward(gradient)
        self._outputs = []
        self._device.synchronize()

    def both(self) -> None:
        """Run a forward and a backward pass."""
        self.forward()
        self.backward()

    def _renew(self) -> None:
        """Draw other rows for the kernels with a cache."""
        for lookup in self._lookups:
            if lookup.is_cached:
                lookup.indices.copy_(self._draw(lookup.drawn))
        self._device.synchronize()

    def _renewed_forward(self) -> None:
        self._renew()
        self.forward()

    def whole(self) -> dict[str, Prepared[None]]:
        """Return the call `both`, which runs a forward and a backward pass."""
        return {"both": Prepared(self.both, renew=self._renew)}

    def passes(self) -> dict[str, Prepared[None]]:
        """Return calls `forward` and `backward`; an untimed forward pass precedes each backward."""
        return {
            "forward": Prepared(self.forward, renew=self._renew),
            "backward": Prepared(self.backward, renew=self._renewed_forward),
        }


def _batches_to_fill(lookup: _Lookup) -> int:
    """Return how many batches about fill the cache of a kernel."""
    rows = len(lookup.kernel.lxu_cache_weights)
    return min(_MOST_FILLING, math.ceil(2 * rows / max(len(lookup.indices), 1)))


def _table(shard: ShardWork, number: int) -> ShardedEmbeddingTable:
    """Wrap a shard as a table that TorchRec can group; its name is the shard's index."""
    features = [f"{number}:{feature}" for feature in range(len(shard.lookups))]
    return ShardedEmbeddingTable(
        num_embeddings=shard.rows,
        embedding_dim=shard.columns,
        name=str(number),
        embedding_names=features,
        feature_names=features,
        data_type=DATA_TYPES[shard.dtype],
        is_weighted=shard.is_weighted,
        local_rows=shard.rows,
        local_cols=shard.columns,
        compute_kernel=EmbeddingComputeKernel(shard.kernel),
        fused_params={
            "optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
            "learning_rate": 0.01,
            **({"cache_load_factor": shard.cached} if shard.kernel == CACHING else {}),
        },
    )


def _kernel(config: GroupedEmbeddingConfig, device: str) -> Any:
    """Return the kernel that TorchRec's `BatchedFusedEmbeddingBag` creates for a group."""
    tables = config.embedding_tables
    compute, places = ComputeDevice.CPU, [EmbeddingLocation.HOST] * len(tables)
    if device == "cuda":
        compute = ComputeDevice.CUDA
        places = [compute_kernel_to_embedding_location(table.compute_kernel) for table in tables]
    return SplitTableBatchedEmbeddingBagsCodegen(
        [
            (table.local_rows, table.local_cols, place, compute)
            for table, place in zip(tables, places, strict=True)
        ],
        feature_table_map=[n for n, table in enumerate(tables) for _ in table.feature_names],
        weights_precision=data_type_to_sparse_type(config.data_type),
        device=torch.device(device),
        **(config.fused_params or {}),
    )
