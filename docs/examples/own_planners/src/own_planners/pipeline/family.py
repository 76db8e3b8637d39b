"""The family: everything that shardbench asks about a planner that it does not know."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from harness.contract import Counter, Family, Goal, Planning, Quality, RankTable, Recorder, Study
from own_planners.pipeline.chain import (
    TERA,
    Chain,
    Cut,
    build,
    facts,
    fingerprint,
    quality,
    validate,
)
from own_planners.pipeline.explaining import explain
from own_planners.pipeline.workloads import inventory, label, list_workloads

_UNEVEN = "uneven[layers=120,seed=1]/dgx_a100_80gb:8"


def _observe(recorder: Recorder) -> AbstractContextManager[None]:
    from own_planners.pipeline.observer import observe  # it imports the variants, which import this

    return observe(recorder)


def _document(chain: Chain, cut: Cut) -> Mapping[str, Any]:
    return {
        "stages": [
            {"rank": rank, "layers": list(range(first, end)), "flop": chain.cost(first, end)}
            for rank, (first, end) in enumerate(cut.stages)
        ]
    }


def _ranks(chain: Chain, cut: Cut) -> RankTable:
    return RankTable(
        columns=("TFLOP", "layers"),
        rows=tuple((chain.cost(first, end) / TERA, end - first) for first, end in cut.stages),
        capacities=(None, None),
        bar="TFLOP",
    )


FAMILY: Family[Chain, Cut] = Family(
    name="pipeline",
    summary="where a chain of layers is cut into the stages of a pipeline",
    build=build,
    label=label,
    facts=facts,
    fingerprint=fingerprint,
    validate=validate,
    quality=quality,
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
    observe=_observe,
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
    goals=(
        Goal("at least 50 times as fast", _UNEVEN, "bisected", "times faster", 50),
        Goal(
            "no worse than the best cut",
            _UNEVEN,
            "bisected",
            "quality",
            1,
            against="exact",
            quality="slowest_stage",
        ),
    ),
    planning=Planning(variant="bisected", document=_document, ranks=_ranks),
    explaining=explain,
    inventory=inventory,
)
