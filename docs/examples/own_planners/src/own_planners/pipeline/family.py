"""The family: everything that shardbench asks about a planner that it does not know."""

from harness.contract import Abilities, Counter, Family, Quality, Statement, Study
from own_planners.pipeline.chain import Chain, Cut
from own_planners.pipeline.workloads import inventory, label, list_workloads

_UNEVEN = "uneven[layers=120,seed=1]/dgx_a100_80gb:8"


FAMILY: Family[Chain, Cut] = Family(
    name="pipeline",
    summary="where a chain of layers is cut into the stages of a pipeline",
    implementation="own_planners.pipeline.chain",
    label=label,
    qualities=(
        Quality("slowest_stage", "TFLOP", "lower", "cost of the slowest stage, forward"),
        Quality(
            "bound",
            "TFLOP",
            "higher",
            "the heaviest layer, or the mean of the stages if that is more",
            bounds="slowest_stage",
        ),
    ),
    counters=(
        Counter("sums", "costs of layers in a row that were asked for"),
        Counter("lookups", "binary searches for the end of a stage"),
    ),
    phases=("bounding", "cutting", "other"),
    workloads=list_workloads,
    benchmarks=("uneven[layers=40,seed=1]/dgx_a100_80gb:8",),
    studies=(
        *(
            Study(
                f"uneven[layers={layers},seed=1]/dgx_a100_80gb:8",
                ("exact", "bisected", "equal-counts"),
                "time against quality",
            )
            for layers in (30, 60, 120)
        ),
        Study("gpt3-175b/dgx_a100_80gb:16", ("exact", "bisected"), "a real model", large=True),
    ),
    statements=(
        Statement("goal", "at least 50 times as fast", _UNEVEN, "exact", "bisected", at_least=50),
        Statement(
            "goal",
            "no worse than the best cut",
            _UNEVEN,
            "exact",
            "bisected",
            "slowest_stage",
            at_most=1,
        ),
    ),
    abilities=Abilities(
        planning="own_planners.pipeline.chain:PLANNING",
        explain="own_planners.pipeline.chain:explain",
        inventory=inventory,
    ),
)
