"""Splits TorchRec's storage estimate of a plan into its terms."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import ParameterConstraints, ShardingOption, Topology
from torchrec.distributed.planner.utils import build_sharder_data_map, sharder_name
from torchrec.distributed.types import ModuleSharder, PipelineType

from planners.embedding.memory.rank_bytes import (
    CACHED,
    INPUTS,
    OPTIMIZER,
    OPTIMIZERS,
    OUTPUTS,
    WEIGHTS,
    Terms,
)
from planners.embedding.search.unmade_shards import with_shards
