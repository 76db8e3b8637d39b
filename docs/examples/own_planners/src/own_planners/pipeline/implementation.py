"""The family's work on chains and cuts, imported when a first chain is built."""

from collections.abc import Mapping
from typing import Any

from harness.contract import Planning, RankTable
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
from own_planners.pipeline.observer import observe

__all__ = ["PLANNING", "build", "facts", "fingerprint", "observe", "quality", "validate"]


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


PLANNING = Planning(variant="bisected", document=_document, ranks=_ranks)
