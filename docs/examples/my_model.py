"""A torchrec model whose tables `shardbench workload import my_model:build` reads."""

import torch
from torch import nn
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection


class Ranker(nn.Module):
    """Pooled features, a sequence, and a small embedding that is no table of torchrec's."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.pooled = EmbeddingBagCollection(
            device=device,
            tables=[
                EmbeddingBagConfig(
                    name="shopper", num_embeddings=8_000_000, embedding_dim=64,
                    feature_names=["shopper"],
                ),
                EmbeddingBagConfig(
                    name="article", num_embeddings=3_000_000, embedding_dim=64,
                    feature_names=["article", "last_article"], data_type=DataType.FP16,
                ),
            ],
        )  # fmt: skip
        self.sequence = EmbeddingCollection(
            device=device,
            tables=[
                EmbeddingConfig(
                    name="seen", num_embeddings=3_000_000, embedding_dim=32, feature_names=["seen"]
                )
            ],
        )
        self.position = nn.Embedding(50, 32, device=device)


def build() -> nn.Module:
    """Return the model on the meta device, which takes no memory for its weights."""
    return Ranker(torch.device("meta"))
