"""What a planner asks of a sharder, to a captured file and back."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_types import BaseEmbeddingSharder, EmbeddingComputeKernel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.utils import build_sharder_data
from torchrec.distributed.types import CommOp, ModuleSharder, ShardingType

from harness.contract import ShardbenchError
from planners.embedding.capture.constraints import passes_read
from planners.embedding.capture.fields import Fields, Malformed

BAGS, SEQUENCES = "EmbeddingBagCollection", "EmbeddingCollection"

_TYPES = [each.value for each in ShardingType]
_KERNELS = [each.value for each in EmbeddingComputeKernel]
_BY_BYTES = {1: torch.int8, 2: torch.float16, 4: torch.float32, 8: torch.float64}


@dataclass(frozen=True, slots=True)
class CapturedSharder:
    """What a sharder of modules of one kind says, of which any number can be made.

    `kernels` has the compute kernels by device and sharding type, in the sharder's order.
    """

    module: str
    kernels: Mapping[str, Mapping[str, list[str]]]
    fused_params: Mapping[str, Any]
    bytes_sent: Mapping[str, tuple[int, int]]

    def make(self) -> ModuleSharder[nn.Module]:
        """Return a new sharder that says so."""
        registry = {
            name: SimpleNamespace(
                forward=SimpleNamespace(quantized_dtype=_BY_BYTES[forward]),
                backward=SimpleNamespace(quantized_dtype=_BY_BYTES[backward]),
            )
            for name, (forward, backward) in self.bytes_sent.items()
        }
        kind = _BagsSharder if self.module == BAGS else _SequencesSharder
        made = kind(fused_params=dict(self.fused_params), qcomm_codecs_registry=registry or None)
        made.captured = self
        return made


class _Saying:
    """A sharder's answers, those of a captured one."""

    captured: CapturedSharder

    def sharding_types(self, compute_device_type: str) -> list[str]:
        """Return what the captured sharder returned."""
        return list(self.captured.kernels.get(compute_device_type, {}))

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        """Return what the captured sharder returned."""
        return self.captured.kernels[compute_device_type][sharding_type]


class _BagsSharder(_Saying, EmbeddingBagCollectionSharder):
    pass


class _SequencesSharder(_Saying, EmbeddingCollectionSharder):
    pass


def sharder_written(sharder: ModuleSharder[nn.Module], kind: str, device: str) -> dict[str, Any]:
    """Return what a sharder says of modules of a kind, on a device and on GPUs.

    Raises:
        ShardbenchError: it estimates memory as no sharder of such modules does.
    """
    if not isinstance(sharder, BaseEmbeddingSharder):
        raise ShardbenchError(
            f"{type(sharder).__name__}, a sharder of {kind}s, is no BaseEmbeddingSharder of "
            "torchrec's, so what it says cannot be captured."
        )
    data = build_sharder_data(sharder)
    passes = data.fused_params.get("multipass_prefetch_config")
    return {
        "module": kind,
        "kernels": {
            each: {
                sharding_type: list(sharder.compute_kernels(sharding_type, each))
                for sharding_type in sharder.sharding_types(each)
            }
            for each in sorted({device, "cuda"})
        },
        "cache_load_factor": data.fused_params.get("cache_load_factor"),
        "prefetch_pipeline": data.fused_params.get("prefetch_pipeline"),
        "multipass_prefetch_config": None if passes is None else dict(passes._asdict()),
        "bytes_sent": {name: list(sizes) for name, sizes in data.qcomm_dtype_sizes.items()},
    }


def sharder_read(said: Fields) -> CapturedSharder:
    """Return what a file says of a sharder.

    Raises:
        Malformed: a field is missing or cannot be so.
    """
    by_device = said.inner("kernels")
    kernels: dict[str, dict[str, list[str]]] = {}
    for device in by_device.names():
        by_type = by_device.inner(device)
        if unknown := set(by_type.names()) - set(_TYPES):
            raise Malformed(f"a sharder knows no sharding type '{min(unknown)}'")
        kernels[device] = {each: by_type.texts(each, _KERNELS) for each in by_type.names()}
    sent = said.inner("bytes_sent")
    if unknown := set(sent.names()) - {each.name for each in CommOp}:
        raise Malformed(f"a sharder knows no communication '{min(unknown)}'")
    bytes_sent = {}
    for name in sent.names():
        sizes = sent.wholes(name)
        if len(sizes) != 2 or not set(sizes) <= set(_BY_BYTES):
            raise Malformed(f"bytes_sent must be two of {', '.join(map(str, _BY_BYTES))}")
        bytes_sent[name] = (sizes[0], sizes[1])
    fused = {
        "cache_load_factor": said.optional("cache_load_factor", said.number),
        "prefetch_pipeline": said.optional("prefetch_pipeline", said.flag),
        "multipass_prefetch_config": said.optional(
            "multipass_prefetch_config", lambda key: passes_read(said.inner(key))
        ),
    }
    return CapturedSharder(
        said.text("module", (BAGS, SEQUENCES)),
        kernels,
        {name: value for name, value in fused.items() if value is not None},
        bytes_sent,
    )
