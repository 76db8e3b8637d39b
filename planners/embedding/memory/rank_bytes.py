"""Counts the bytes of one rank of a plan, on TorchRec's sharded module in this process."""

import gc
import os
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    DenseTableBatchedEmbeddingBagsCodegen,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from planners.embedding.memory.allocations import allocations
from planners.embedding.memory.one_rank_world import parts_of
from planners.embedding.memory.rank_model import RankJob, RankModel, played

WEIGHTS, OPTIMIZER, CACHED = "weights", "optimizer", "cached rows"
INPUTS, OUTPUTS, GRADIENTS = "inputs", "outputs", "gradients"
PEAK = "peak of a step"
OF_RANK = ""
"""In place of a sharding type, for the bytes of the whole rank."""

Terms = dict[str, dict[str, int]]
"""Bytes by sharding type, and by term."""

_WARM_UP = 2  # steps, after which nothing more stays allocated from step to step


def measure_rank(job: RankJob, *_report: object) -> Terms:
    """Return the bytes of a rank, and under `OF_RANK` the peak of a step.

    The process must not be used for anything else, because the measurement changes its state.
    """
    os.environ["KINETO_LOG_LEVEL"] = "99"  # torch's profiler prints when it starts
    with played(job) as inputs:
        gc.collect()
        with allocations(job.device) as built:
            model = RankModel(job)
            for _ in range(_WARM_UP):
                model.step(inputs)
            gc.collect()
        gc.disable()  # TorchRec's reference cycles would be freed at moments that vary
        with allocations(job.device) as stepped:
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
    found: Terms = {}
    for kind, lookup, features, output in zip(
        module._sharding_types, module._lookups, received, outputs, strict=True
    ):
        kept = Counter[str]()
        for part in parts_of(lookup):
            kept.update(_kept(part, model.outside))
        found[kind] = {
            **{term: kept[term] for term in (WEIGHTS, OPTIMIZER, CACHED)},
            INPUTS: _bytes([features.values(), features.lengths()]),
            OUTPUTS: _bytes([output]),
            GRADIENTS: kept[GRADIENTS] + _bytes([output.grad]),
        }
    return found


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
            OPTIMIZER: _bytes(one for state in states for one in state.values() if one.dim()),
            GRADIENTS: _bytes(one.grad for one in weights if one.grad is not None),
        }
    return {}


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
