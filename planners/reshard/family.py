"""Declare the reshard family: its qualities, counters, phases and workloads.

This module must not import torch, so that listing variants is quick.
"""

from typing import TYPE_CHECKING

from harness.contract import Abilities, Counter, Family, Quality
from planners.reshard.suite import STATEMENTS, STUDIES
from planners.reshard.workloads import WORKLOADS, label

if TYPE_CHECKING:
    from planners.reshard.problem import ReshardProblem
    from planners.reshard.resharding.resharder import Resharded


FAMILY: Family["ReshardProblem", "Resharded"] = Family(
    name="reshard",
    summary="communication for a program: Paddle's static auto-parallel reshard",
    implementation="planners.reshard.implementation",
    label=label,
    qualities=(
        Quality(
            "moved_mib", "MiB", "lower", "MiB that a rank sends, receives, gathers and reduces"
        ),
        Quality("inserted_ops", "", "lower", "ops that were inserted and stayed"),
    ),
    counters=(
        Counter("syncs", "syncs of the whole block", sufficient="batches"),
        Counter("batches", "batches of insertions or removals"),
        Counter("ops_visited", "ops that a synchronisation looked at", "edits"),
        Counter("edits", "ops that were inserted or removed"),
        Counter("values_visited", "values that a synchronisation looked at"),
        Counter("inserts", "ops that were inserted"),
        Counter("removals", "ops that were removed"),
        Counter("parses", "inputs that were resharded"),
        Counter("crossed_bytes", "bytes of names and attributes that crossed to C++ or back"),
    ),
    phases=("syncing", "searching", "inserting", "removing", "other"),
    workloads=lambda: WORKLOADS,
    requires=("torch",),
    preload=("torch",),
    benchmarks=("transformer/dgx_a100_80gb:4",),
    abilities=Abilities(inventory="planners.reshard.inventory:inventory"),
    studies=STUDIES,
    statements=STATEMENTS,
    place=40,
)
