"""Counts the bytes of one rank of a plan, on TorchRec's sharded module in this process."""

import gc
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    DenseTableBatchedEmbeddingBagsCodegen,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from torch.profiler import ProfilerActivity, profile
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from planners.embedding.memory.rank_model import RankJob, RankModel, parts_of, played
from planners.embedding.memory.shard_bytes import (
    CACHED,
    GRADIENTS,
    INPUTS,
    OF_RANK,
    OPTIMIZER,
    OUTPUTS,
    PEAK,
    WEIGHTS,
    Terms,
)

_WARM_UP = 2  # steps, after which nothing more stays allocated from step to step


def measure_rank(job: RankJob, *_report: object) -> Terms:
    """Return the bytes of a rank, and under `OF_RANK` the peak of a step.

    The process must not be used for anything else, because the measurement changes its state.
    """
    os.environ["KINETO_LOG_LEVEL"] = "99"  # torch's profiler prints when it starts
    with played(job) as inputs:
        gc.collect()
        with _allocations(job.device) as built:
            model = RankModel(job)
            for _ in range(_WARM_UP):
                model.step(inputs)
            gc.collect()
        gc.disable()  # TorchRec's reference cycles would be freed at moments that vary
        with _allocations(job.device) as stepped:
            model.step(inputs)
        terms = {job.names[kind]: of_kind for kind, of_kind in terms_of(model, inputs).items()}
        return {**terms, OF_RANK: {PEAK: built.left + stepped.peak}}


def terms_of(model: RankModel, inputs: KeyedJaggedTensor) -> Terms:
    """Return the bytes of the tables, their inputs, outputs and gradients."""
    module: Any = model.sharded.module
    context = module.create_context()
    received = module.input_dist(context, inputs).wait().wait()
    outputs = module.compute(context, received)
    for output in outputs:
        output.retain_grad()
    module.output_dist(context, outputs).wait().values().sum().backward()
    terms: Terms = {}
    for kind, lookup, features, output in zip(
        module._sharding_types, module._lookups, received, outputs, strict=True
    ):
        kept = Counter[str]()
        for part in parts_of(lookup):
            kept.update(_kept(part, model.outside))
        terms[kind] = {
            **{name: kept[name] for name in (WEIGHTS, OPTIMIZER, CACHED)},
            INPUTS: _bytes([features.values(), features.lengths()]),
            OUTPUTS: _bytes([output]),
            GRADIENTS: kept[GRADIENTS] + _bytes([output.grad]),
        }
    return terms


def _kept(part: torch.nn.Module, outside: torch.optim.Optimizer | None) -> dict[str, int]:
    """Return the bytes that a table-batched kernel keeps, by term; none of another module."""
    if isinstance(part, SplitTableBatchedEmbeddingBagsCodegen):
        caches = [value for name, value in part.named_buffers() if "lxu_cache" in name]
        return {
            WEIGHTS: _bytes(part.split_embedding_weights()),
            OPTIMIZER: _bytes(chain.from_iterable(part.split_optimizer_states())),
            CACHED: 0 if part.use_cpu else _bytes(caches),
        }
    if isinstance(part, DenseTableBatchedEmbeddingBagsCodegen):
        weights = [*part.parameters()]
        states = outside.state.values() if outside else ()
        return {
            WEIGHTS: _bytes(weights),
            OPTIMIZER: _bytes(value for state in states for value in state.values() if value.dim()),
            GRADIENTS: _bytes(part.grad for part in weights if part.grad is not None),
        }
    return {}


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@dataclass(slots=True)
class _Allocated:
    """The bytes of a block of code, relative to its start: the largest number, and that left."""

    peak: int = 0
    left: int = 0


@contextmanager
def _allocations(device: str) -> Iterator[_Allocated]:
    """Count the bytes allocated in the `with` block; the result is complete after the block.

    On a CPU, torch's profiler reports every call of torch's allocator, also those inside kernels of
    fbgemm. Memory that a kernel takes elsewhere, such as a `std::vector`, is not seen. On CUDA the
    caching allocator has its own count, in multiples of 512 bytes; managed memory is not in it.
    """
    counted = _Allocated()
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        yield counted
        torch.cuda.synchronize()
        counted.peak = torch.cuda.max_memory_allocated() - before
        counted.left = torch.cuda.memory_allocated() - before
        return
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        yield counted
    for change in _changes(profiler):
        counted.left += change
        counted.peak = max(counted.peak, counted.left)


def _changes(profiler: Any) -> list[int]:
    """Return the bytes of each allocation, and minus those of each release, in their order."""
    waiting = list(profiler.profiler.kineto_results.experimental_event_tree())
    changes: list[tuple[int, int]] = []
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if event.name == "[memory]":
            changes.append((event.start_time_ns, event.extra_fields.alloc_size))
    return [size for _, size in sorted(changes, key=lambda change: change[0])]
