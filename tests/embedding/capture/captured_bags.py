"""Models of embedding bags that are captured, and what the live planner decides of them."""

from pathlib import Path

from captured_models import META, Script, built
from torch import nn
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import Topology
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection


def bags(prefix: str = "table", tables: int = 8, rows: int = 50_000) -> EmbeddingBagCollection:
    return EmbeddingBagCollection(
        device=META,
        tables=[
            EmbeddingBagConfig(
                name=f"{prefix}_{number}",
                num_embeddings=rows * (1 + number % 3),
                embedding_dim=64,
                feature_names=[f"{prefix}_feature_{number}"],
            )
            for number in range(tables)
        ],
    )


def script(module: nn.Module | None = None, hbm: int = 2**30, **arguments: object) -> Script:
    topology = Topology(4, "cuda", hbm_cap=hbm, local_world_size=2, created_by_factory=True)
    arguments.setdefault("storage_reservation", lambda: FixedPercentageStorageReservation(0.1))
    return Script(module or bags(), topology, {}, arguments)


def live_decision(path: Path) -> str:
    problem = built(path)
    assert problem.live is not None
    return problem.live.decision
