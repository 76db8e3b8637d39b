"""Plans small models with a cache; run as a script, it plans in a process of its own.

usage: python cached_plans.py FOLDER
"""

import sys
from pathlib import Path
from typing import Any

from torch import nn
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import ParameterConstraints, Topology

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the script
from compared import decisions
from random_models import collection

from planners.embedding.drop_in.planner import Planner
from planners.embedding.plan_cache.cache import PlanCache

GIB = 2**30
MIB = 2**20


def rows_of(tables: int) -> dict[str, int]:
    return {f"t{number}": 1000 * (3 + number * number * 37 % 400) for number in range(tables)}


def model(rows: dict[str, int]) -> nn.Module:
    module = nn.Module()
    module.bags = collection({name: (count, 64) for name, count in rows.items()})
    return module


def topology(hbm: int = 4 * GIB, ranks: int = 4) -> Topology:
    return Topology(ranks, "cuda", local_world_size=min(ranks, 4), hbm_cap=hbm)


def planner(cache: Any, machine: Topology | None = None, **arguments: Any) -> Planner:
    """Return a new planner; it has constraints, as a job has."""
    return Planner(
        machine or topology(),
        **{
            "constraints": {"t1": ParameterConstraints(pooling_factors=[3.0])},
            "stats": [],
            "debug": False,
            "cache": cache,
            **arguments,
        },
    )


def planned(cache: Any, rows: dict[str, int], machine: Topology | None = None, **arguments: Any):
    """Plan with a new planner, and return it with its plan."""
    made = planner(cache, machine, **arguments)
    made.plan(model(rows), [EmbeddingBagCollectionSharder()])
    return made


def placement(made: Planner) -> dict[str, Any]:
    return decisions(made._best_plan)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def told(caplog: Any) -> list[str]:
    """Return the messages that are not torchrec's."""
    ours = ("shardbench", "planners")
    return [r.getMessage() for r in caplog.records if r.name.startswith(ours)]


if __name__ == "__main__":
    print(planned(PlanCache(sys.argv[1]), rows_of(4), mode="best-plan").from_cache)
