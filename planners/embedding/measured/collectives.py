"""The collectives of a plan: the bytes that a rank sends, and how long they take on real links."""

import math
import os
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torchrec.distributed.planner.types import ShardingOption, Topology
from torchrec.distributed.types import ShardingType

from harness.contract import Prepared

_FORWARD = {
    ShardingType.ROW_WISE.value: "reduce-scatter",
    ShardingType.TABLE_ROW_WISE.value: "reduce-scatter",
    ShardingType.GRID_SHARD.value: "reduce-scatter",
}
_BACKWARD = {"reduce-scatter": "all-gather", "all-to-all": "all-to-all"}


def bytes_sent(plan: Iterable[ShardingOption], topology: Topology) -> dict[str, float]:
    """Return the bytes of pooled vectors of all ranks, by collective, of one iteration.

    Outputs go by all-to-all where a table is whole or cut by columns and by reduce-scatter where it
    is cut by rows; gradients come back by all-to-all and all-gather. Each is one rank's mean; what
    hosts exchange beside that for tables on one host is left out.
    """
    sent: dict[str, float] = {}
    for option in plan:
        item = option.tensor.element_size()
        samples = option.batch_size * topology.world_size * len(option.input_lengths)
        for shard in option.shards:
            size = samples * shard.size[1] * item / topology.world_size
            forward = _FORWARD.get(option.sharding_type, "all-to-all")
            for name in (forward, _BACKWARD[forward]):
                sent[name] = sent.get(name, 0.0) + size
    return sent


class ProcessGroupLinks:
    """The processes that torchrun started, joined by nccl on CUDA and by gloo elsewhere."""

    def __init__(self, device: str) -> None:
        self.backend = "nccl" if device == "cuda" else "gloo"
        if device == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        self._device = torch.device(device)
        dist.init_process_group(self.backend)
        self.processes = dist.get_world_size()
        self.is_first = dist.get_rank() == 0

    def agree(self, value: Any) -> Any:
        """Return what the first process has; the others wait for it."""
        held = [value]
        dist.broadcast_object_list(held, src=0)
        return held[0]

    def prepared(self, collective: str, bytes_sent: float) -> Prepared[None]:
        """Return a collective of so many bytes of each process, which all begin together."""
        items = max(1, math.ceil(bytes_sent / 4 / self.processes))
        whole = torch.zeros(items * self.processes, device=self._device)
        part = torch.zeros(items, device=self._device)
        calls = {
            "all-to-all": lambda: dist.all_to_all_single(torch.empty_like(whole), whole),
            "reduce-scatter": lambda: dist.reduce_scatter_single(part, whole),
            "all-gather": lambda: dist.all_gather_single(whole, part),
        }

        def run() -> None:
            calls[collective]()
            if self._device.type == "cuda":
                torch.cuda.synchronize()

        return Prepared(run, renew=dist.barrier)

    def leave(self) -> None:
        """End the group."""
        dist.destroy_process_group()


def links(device: str) -> ProcessGroupLinks | None:
    """Return the processes that this one was started with, None where it is alone."""
    return ProcessGroupLinks(device) if int(os.environ.get("WORLD_SIZE", "1")) > 1 else None
