"""Captures a sharder by the values that torchrec's planner reads from it."""

from types import SimpleNamespace
from typing import Annotated, Final, Literal

import torch
from msgspec import Struct
from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_types import BaseEmbeddingSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.utils import build_sharder_data
from torchrec.distributed.types import CommOp, ModuleSharder

from harness.contract import ShardbenchError
from planners.embedding.capture.constraints import KERNELS, SHARDING_TYPES, PrefetchPasses
from planners.embedding.capture.limits import Number, one_of

ModuleKind = Literal["EmbeddingBagCollection", "EmbeddingCollection"]
BAGS: Final = "EmbeddingBagCollection"
SEQUENCES: Final = "EmbeddingCollection"

_BY_BYTES = {1: torch.int8, 2: torch.float16, 4: torch.float32, 8: torch.float64}

_Kernels = list[Annotated[str, one_of(KERNELS)]]
_ItemBytes = Literal[1, 2, 4, 8]


class CapturedSharder(Struct, frozen=True):
    """A sharder for one class of modules; `kernels` are by kind of device, then sharding type."""

    module: ModuleKind
    kernels: dict[str, dict[Annotated[str, one_of(SHARDING_TYPES)], _Kernels]]
    cache_load_factor: Number | None
    prefetch_pipeline: bool | None
    multipass_prefetch_config: PrefetchPasses | None
    bytes_sent: dict[
        Annotated[str, one_of(op.name for op in CommOp)], tuple[_ItemBytes, _ItemBytes]
    ]  # per element, forward and backward, by communication

    @classmethod
    def of(
        cls, sharder: ModuleSharder[nn.Module], module: ModuleKind, device: str
    ) -> "CapturedSharder":
        """Capture a sharder for modules of class `module`, with its kernels for `device` and GPUs.

        Raises ShardbenchError if the sharder is not a BaseEmbeddingSharder of torchrec.
        """
        if not isinstance(sharder, BaseEmbeddingSharder):
            raise ShardbenchError(
                f"{type(sharder).__name__}, a sharder of {module}s, is no BaseEmbeddingSharder of "
                "torchrec, so its answers are unknown."
            )
        data = build_sharder_data(sharder)
        passes = data.fused_params.get("multipass_prefetch_config")
        return cls(
            module=module,
            kernels={
                kind: {
                    sharding_type: list(sharder.compute_kernels(sharding_type, kind))
                    for sharding_type in sharder.sharding_types(kind)
                }
                for kind in sorted({device, "cuda"})
            },
            cache_load_factor=data.fused_params.get("cache_load_factor"),
            prefetch_pipeline=data.fused_params.get("prefetch_pipeline"),
            multipass_prefetch_config=passes and PrefetchPasses.of(passes),
            bytes_sent=dict(data.qcomm_dtype_sizes),
        )

    def make(self) -> ModuleSharder[nn.Module]:
        """Return a new sharder with the captured values."""
        passes = self.multipass_prefetch_config
        fused_params = {
            "cache_load_factor": self.cache_load_factor,
            "prefetch_pipeline": self.prefetch_pipeline,
            "multipass_prefetch_config": passes and passes.make(),
        }
        codecs = {
            name: SimpleNamespace(
                forward=SimpleNamespace(quantized_dtype=_BY_BYTES[forward]),
                backward=SimpleNamespace(quantized_dtype=_BY_BYTES[backward]),
            )
            for name, (forward, backward) in self.bytes_sent.items()
        }
        kind = _ReplayedBagsSharder if self.module == BAGS else _ReplayedSequencesSharder
        sharder = kind(
            fused_params={key: value for key, value in fused_params.items() if value is not None},
            qcomm_codecs_registry=codecs or None,
        )
        sharder.captured = self
        return sharder


class _CapturedAnswers:
    """A mixin that makes a sharder return the captured sharding types and kernels."""

    captured: CapturedSharder

    def sharding_types(self, compute_device_type: str) -> list[str]:
        return list(self.captured.kernels.get(compute_device_type, {}))

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        return self.captured.kernels[compute_device_type][sharding_type]


class _ReplayedBagsSharder(_CapturedAnswers, EmbeddingBagCollectionSharder):
    pass


class _ReplayedSequencesSharder(_CapturedAnswers, EmbeddingCollectionSharder):
    pass
