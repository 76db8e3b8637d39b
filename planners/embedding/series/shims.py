"""Shims for names that old torchrec commits lack or call differently, each with its reason.

A shim adds a missing name or leaves out an argument; it changes no code of a commit.
"""

import functools
import inspect
import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import torch


def install() -> None:
    """Install the shims that the torchrec checkout on the import path needs."""
    _ignore_libraries_of_meta()
    _name_module_of_meta()
    from torchrec.distributed.embedding_types import EmbeddingComputeKernel
    from torchrec.distributed.planner import planners, storage_reservations
    from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
    from torchrec.distributed.planner.types import ParameterConstraints, Topology
    from torchrec.modules.embedding_configs import DataType

    if not hasattr(DataType, "BF16"):  # since 2023-03; no table of a history is of that type
        DataType.BF16 = DataType.FP16
    if not hasattr(storage_reservations, "FixedPercentageStorageReservation"):  # renamed 2023-02
        storage_reservations.FixedPercentageStorageReservation = (
            storage_reservations.FixedPercentageReservation
        )
    if not hasattr(EmbeddingComputeKernel, "FUSED"):  # all were batched before the name changed
        EmbeddingComputeKernel.FUSED = EmbeddingComputeKernel.BATCHED_FUSED
        EmbeddingComputeKernel.FUSED_UVM_CACHING = EmbeddingComputeKernel.BATCHED_FUSED_UVM_CACHING
    # The batch size was the topology's until 2022-07, 512 as it is here.
    _leave_out_unknown_arguments(EmbeddingEnumerator)
    # Until 2022-02 there was no debug, and until 2022-07 the planner forgot its best plan.
    _silence_statistics(planners.EmbeddingShardingPlanner)
    _leave_out_unknown_arguments(planners.EmbeddingShardingPlanner)
    if "_best_plan" not in inspect.getsource(planners.EmbeddingShardingPlanner):
        _keep_best_plan(planners)
    # hbm_to_ddr_mem_bw came 2024-11, the other bandwidths of memory 2023-05: before, a constant.
    _leave_out_unknown_arguments(Topology)
    _leave_out_unknown_arguments(ParameterConstraints)


def _ignore_libraries_of_meta() -> None:
    """Ignore the path of fbgemm inside Meta, which commits of 2021 load; it is loaded already."""
    load_library = torch.ops.load_library

    def load(path: Any) -> None:
        if not str(path).startswith("//"):
            load_library(path)

    torch.ops.load_library = load


def _name_module_of_meta() -> None:
    """Register a module under its name inside Meta, which two commits of 2021-12 import."""
    parts = ["caffe2", "torch", "fb", "sparsenn", "pooled_embeddings_modules"]
    for depth in range(1, len(parts)):
        name = ".".join(parts[:depth])
        sys.modules.setdefault(name, ModuleType(name))
    public = import_module("fbgemm_gpu.permute_pooled_embedding_modules")
    sys.modules[".".join(parts)] = public


def _leave_out_unknown_arguments(owner: Any) -> None:
    """Make the constructor of a class ignore named arguments that it does not know."""
    construct = owner.__init__
    known = inspect.signature(construct).parameters

    @functools.wraps(construct)
    def constructed(self: Any, *args: Any, **named: Any) -> None:
        construct(self, *args, **{name: value for name, value in named.items() if name in known})

    owner.__init__ = constructed


def _silence_statistics(planner: Any) -> None:
    """Silence the statistics of a planner class that takes one `stats` object, not a list.

    The caller passes an empty list, which such a class replaces by the default statistics.
    """
    construct = planner.__init__
    if "List" in str(inspect.signature(construct).parameters["stats"].annotation):
        return

    @functools.wraps(construct)
    def constructed(self: Any, *args: Any, **named: Any) -> None:
        construct(self, *args, **named)
        self._stats = SimpleNamespace(log=lambda *args, **named: None)

    planner.__init__ = constructed


def _keep_best_plan(planners: Any) -> None:
    """Store the options that a planner converts to its plan as `_best_plan`."""
    name = "to_sharding_plan" if hasattr(planners, "to_sharding_plan") else "_to_sharding_plan"
    convert = getattr(planners, name)

    def kept(sharding_options: Any, *args: Any, **named: Any) -> Any:
        planners.EmbeddingShardingPlanner._best_plan = sharding_options
        return convert(sharding_options, *args, **named)

    setattr(planners, name, kept)
