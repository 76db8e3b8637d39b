"""Drives one release or commit of torchrec's planner, in a child process that imports it.

The planner and its problem are those of variant `upstream`; a test compares them. This module uses
only names that all releases from 1.2.0 to 1.9.2 share, and imports no module that works with the
installed release alone. It counts and times a planner's steps by wrapping methods; the family
observes its variants with the same functions. Names that a release lacks are skipped: 1.5.0 has no
annotations. Each release imports deepcopy in another way, so all planner modules are searched.
"""

import copy
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any

import torchrec
from torch import nn
from torchrec.distributed.planner.constants import BATCH_SIZE
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import GreedyProposer
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import Proposer, ShardingOption, Topology as Machines
from torchrec.distributed.types import ModuleSharder

from harness.contract import Driven, Recorder, Topology, UsageError, WorkloadSpec
from planners.embedding.tables.torchrec_objects import (
    RESERVED_FRACTION,
    ModelParallelSharder,
    SequenceSharder,
    constraints_of,
    embedding_model,
    plan_fingerprint,
)
from planners.embedding.workloads.catalog import sized_tables, sizes_of
from planners.instruments import replaced

_LOOKUPS = ("_get_annotated_method", "_get_coefficient_method")
# Commits from 2026-02-18 to 2026-03-03 name it V2, until that replaced the older one.
_ESTIMATORS = ("EmbeddingPerfEstimator", "EmbeddingPerfEstimatorV2")


# --- One release's planner ------------------------------------------------------------------------


def drive(workload: WorkloadSpec, topology: Topology, planner: str) -> Driven:
    """Return a problem that a new planner plans in each call.

    Raises UsageError if the workload is malformed.
    """
    sizes = sizes_of(workload)
    if sizes.memory == "mixed":
        raise UsageError("Releases are measured with tables in GPU memory, not with memory=mixed.")
    usable = int(topology.hbm_bytes * (1 - RESERVED_FRACTION)) * topology.gpus
    tables = sized_tables(workload, usable)
    machines = _torchrec_topology(topology)
    module, constraints = embedding_model(tables, sizes.weights), constraints_of(tables)
    sharders: list[ModuleSharder[nn.Module]] = [ModelParallelSharder(), SequenceSharder()]

    def new_enumerator() -> EmbeddingEnumerator:
        return EmbeddingEnumerator(
            topology=machines, batch_size=BATCH_SIZE, constraints=constraints
        )

    def plan() -> list[ShardingOption]:  # a planner that has planned before may plan wrongly
        made = EmbeddingShardingPlanner(
            topology=machines,
            enumerator=new_enumerator(),
            storage_reservation=FixedPercentageStorageReservation(percentage=RESERVED_FRACTION),
            proposer=_proposer(planner),
            partitioner=GreedyPerfPartitioner(),
            constraints=constraints,
            stats=[],
            debug=False,
        )
        made.plan(module, sharders)
        return list(made._best_plan or ())

    def run(recorder: Recorder) -> list[ShardingOption]:
        with phases(recorder), recorder.call():
            return plan()

    def parts() -> dict[str, Any]:
        enumerator = new_enumerator()
        return {"enumerate": lambda: enumerator.enumerate(module, sharders), "search": plan}

    def quality(plan: list[Any]) -> dict[str, float]:
        perf: Counter[int] = Counter()  # ms by rank; until 2023-05 a shard's perf was a number
        for option in plan:
            for shard in option.shards:
                perf[shard.rank] += getattr(shard.perf, "total", shard.perf)
        return {"max_rank_ms": max(perf.values())}

    return Driven(torchrec, run, plan_fingerprint, parts, counted, quality)


def _proposer(named: str) -> Proposer | None:
    """Return the proposer of one of the declared planners, None for those that are the default."""
    if named == "dynamic-programming":  # since 2024-08
        from torchrec.distributed.planner.proposers import DynamicProgrammingProposer

        return DynamicProgrammingProposer()
    return None if named == "default" else GreedyProposer()


def _torchrec_topology(topology: Topology) -> Machines:
    """Build torchrec's Topology by its constructor, which every release has.

    The factory that 1.8.0 recommends exists since 1.6; both give the planner the same figures.
    """
    known = {"ddr_cap": topology.ddr_bytes, "inter_host_bw": topology.inter_host_bw}
    return Machines(
        world_size=topology.gpus,
        local_world_size=topology.gpus_in_domain,
        compute_device="cuda",
        hbm_cap=topology.hbm_bytes,
        intra_host_bw=topology.intra_host_bw,
        hbm_mem_bw=topology.hbm_bw,
        hbm_to_ddr_mem_bw=topology.hbm_to_ddr_bw,
        **{name: value for name, value in known.items() if value is not None},
    )


# --- Phases and counters --------------------------------------------------------------------------


def replace_timed(
    recorder: Recorder, component: Any, method: str, phase: str, counter: str = ""
) -> None:
    """Wrap a component's method to time it as a phase, and to count its calls in `counter`."""
    setattr(component, method, recorder.timed(phase, getattr(component, method), counter))


def observe_components(planner: EmbeddingShardingPlanner, recorder: Recorder) -> None:
    """Time a planner's components as phases, at the cost of a few wrapped calls per proposal."""
    replace_timed(recorder, planner._enumerator, "enumerate", "enumerate")
    replace_timed(recorder, planner._perf_model, "rate", "rate")
    replace_timed(recorder, planner._partitioner, "partition", "partition", "partitions")
    for proposer in planner._proposers:
        replace_timed(recorder, proposer, "load", "propose")
        replace_timed(recorder, proposer, "feedback", "propose")
        proposer.propose = recorder.timed("propose", _counted_proposals(recorder, proposer))


def phases(
    recorder: Recorder,
    observe: Callable[[EmbeddingShardingPlanner, Recorder], None] = observe_components,
) -> AbstractContextManager[None]:
    """Return a context in which `observe` is called for each planner before it plans."""
    plan = EmbeddingShardingPlanner.plan

    def observed_plan(planner: EmbeddingShardingPlanner, *args: Any, **kwargs: Any) -> Any:
        observe(planner, recorder)
        return plan(planner, *args, **kwargs)

    return replaced([(EmbeddingShardingPlanner, "plan", observed_plan)])


def counted(recorder: Recorder) -> AbstractContextManager[None]:
    """Return a context that counts estimates, annotation lookups and copies; this costs time."""
    original, deepcopy = copy.deepcopy, _counted_deepcopy(recorder, copy.deepcopy)
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("torchrec.distributed.planner")
    ]
    rows: list[tuple[Any, str, Any]] = []
    # Modules call `copy.deepcopy`, or have imported this and others by name.
    for module in (copy, *modules):
        for name, value in vars(module).items():
            if value is original:
                rows.append((module, name, deepcopy))
            elif name in _LOOKUPS:
                rows.append((module, name, recorder.counted("annotation_lookups", value)))
            elif name in _ESTIMATORS and value.__module__ == module.__name__:
                rows.append((value, "estimate", _counted_estimates(recorder, value.estimate)))
    return replaced(rows)


def _counted_estimates(recorder: Recorder, estimate: Callable[..., None]) -> Callable[..., None]:

    @wraps(estimate)
    def counted(
        estimator: Any, sharding_options: list[ShardingOption], *args: Any, **kwargs: Any
    ) -> None:
        if recorder.current is not None:
            recorder.counters["estimates"] += sum(len(option.shards) for option in sharding_options)
        estimate(estimator, sharding_options, *args, **kwargs)

    return counted


def _counted_proposals(
    recorder: Recorder, proposer: Any
) -> Callable[[], list[ShardingOption] | None]:
    propose = proposer.propose

    def counted() -> list[ShardingOption] | None:
        proposal: list[ShardingOption] | None = propose()
        if proposal:
            recorder.counters["proposals"] += 1
        return proposal

    return counted


def _counted_deepcopy(recorder: Recorder, deepcopy: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap deepcopy to count outermost calls and copied objects, and copies of plans and devices.

    A copy that the enumerator makes, such as that of the search space, belongs to its own phase.
    """
    copying = False

    def copy_and_count(original: Any, memo: dict[int, Any] | None = None) -> Any:
        nonlocal copying
        if copying or recorder.current is None:
            return deepcopy(original, memo)
        memo = {} if memo is None else memo
        copying = True
        try:
            with recorder.phase(_copy_phase(original, recorder)):
                copied = deepcopy(original, memo)
        finally:
            copying = False
        recorder.counters["deepcopy_calls"] += 1
        # The memo holds every object that was copied, and one list that keeps them alive.
        recorder.counters["objects_copied"] += sum(key != id(memo) for key in memo)
        return copied

    return copy_and_count


def _copy_phase(original: Any, recorder: Recorder) -> str:
    phase = recorder.current or "other"
    if phase == "enumerate" or original is None:
        return phase
    if isinstance(original, list) and original and isinstance(original[0], ShardingOption):
        recorder.counters["plan_copies"] += 1
        return "copy"
    recorder.counters["device_copies"] += 1
    return "copy_devices"
