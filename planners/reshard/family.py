"""The reshard family: what is said, counted and compared of resharding a static program.

Nothing here imports torch: listing variants must be quick.
"""

from typing import TYPE_CHECKING

from harness.contract import Abilities, Counter, Family, Quality
from planners.reshard.suite import GOALS, OVERVIEW, STUDIES
from planners.reshard.workloads import WORKLOADS, label

if TYPE_CHECKING:
    from planners.reshard.problem import ReshardDecision, ReshardProblem


FAMILY: Family["ReshardProblem", "ReshardDecision"] = Family(
    name="reshard",
    summary="how a program gets its communication: Paddle's static auto-parallel reshard",
    implementation="planners.reshard.implementation",
    label=label,
    qualities=(
        Quality("moved_mib", "MiB", "lower", "what a rank sends, receives, gathers and reduces"),
        Quality("inserted_ops", "", "lower", "ops that were inserted and stayed"),
    ),
    counters=(
        Counter("syncs", "times that the whole block was looked at", enough="batches"),
        Counter("batches", "batches of insertions or removals"),
        Counter("ops_visited", "ops that were looked at to bring the block in line", "edits"),
        Counter("edits", "ops that were inserted or removed"),
        Counter("values_visited", "values that were looked at to bring the block in line"),
        Counter("inserts", "ops that were inserted"),
        Counter("removals", "ops that were removed"),
        Counter("parses", "inputs for which ops were inserted, or looked for"),
        Counter("crossed_bytes", "bytes of names and attributes that crossed to C++ or back"),
    ),
    phases=("syncing", "searching", "inserting", "removing", "other"),
    workloads=lambda: WORKLOADS,
    requires=("torch",),
    preload=("torch",),
    benchmarks=("transformer/dgx_a100_80gb:4",),
    abilities=Abilities(inventory="planners.reshard.inventory:inventory"),
    studies=STUDIES,
    goals=GOALS,
    overview=OVERVIEW,
)
