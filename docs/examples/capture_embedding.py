"""Capture a planning problem as a training script has it, and plan it again.

    python docs/examples/capture_embedding.py problem.json [--hash-names]

No GPU and no process group is needed: TorchRec's planner only computes, so 16 GPUs that are not
there are planned for like any others. In a script of your own, what is new is the line that begins
with `with capture`.
"""

import sys

import torch
from torch import nn
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from shardbench import capture

TABLES = {"user": (5_000_000, 64), "item": (20_000_000, 128), "shop": (40_000, 32)}
"""Rows and dimension of each table."""


class Model(nn.Module):
    """Embedding tables and a dense over-arch."""

    def __init__(self) -> None:
        super().__init__()
        tables = [
            EmbeddingBagConfig(
                name=name,
                num_embeddings=rows,
                embedding_dim=dim,
                feature_names=[f"{name}_clicked", f"{name}_seen"],
            )
            for name, (rows, dim) in TABLES.items()
        ]
        self.sparse = EmbeddingBagCollection(tables, device=torch.device("meta"))
        self.over = nn.Linear(448, 1, device="meta")


def main(path: str, hash_names: bool) -> None:
    """Plan a model for 16 GPUs, and capture what the planner is given."""
    constraints = ParameterConstraints(
        sharding_types=["table_wise", "column_wise", "row_wise"], pooling_factors=[3.0, 20.0]
    )
    planner = EmbeddingShardingPlanner(
        topology=Topology(16, "cuda", local_world_size=8, hbm_cap=4 * 2**30, ddr_cap=64 * 2**30),
        batch_size=4096,
        storage_reservation=FixedPercentageStorageReservation(percentage=0.15),
        constraints=dict.fromkeys(TABLES, constraints),
        debug=False,
        stats=[],
    )
    with capture("embedding", path, hash_names=hash_names):
        plan = planner.plan(Model(), [EmbeddingBagCollectionSharder()])
    for name, sharding in plan.plan["sparse"].items():
        print(name, sharding.sharding_type, *sharding.ranks)


if __name__ == "__main__":
    main(sys.argv[1], "--hash-names" in sys.argv)
