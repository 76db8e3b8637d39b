"""Counts the bytes that torch's allocators give out and take back, on a CPU or on CUDA."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


@dataclass(slots=True)
class Allocated:
    """The bytes of a block of code, relative to its start: the largest number, and that left."""

    peak: int = 0
    left: int = 0


@contextmanager
def allocations(device: str) -> Iterator[Allocated]:
    """Count the bytes allocated in the `with` block; the result is complete after the block.

    On a CPU, torch's profiler reports every call of torch's allocator, also those inside kernels of
    fbgemm. Memory that a kernel takes elsewhere, such as a `std::vector`, is not seen. On CUDA the
    caching allocator has its own count, in multiples of 512 bytes; managed memory is not in it.
    """
    found = Allocated()
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        yield found
        torch.cuda.synchronize()
        found.peak = torch.cuda.max_memory_allocated() - before
        found.left = torch.cuda.memory_allocated() - before
        return
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        yield found
    for change in _changes(profiler):
        found.left += change
        found.peak = max(found.peak, found.left)


def _changes(profiler: Any) -> list[int]:
    """Return the bytes of each allocation, and minus those of each release, in their order."""
    waiting = list(profiler.profiler.kineto_results.experimental_event_tree())
    changes: list[tuple[int, int]] = []
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if event.name == "[memory]":
            changes.append((event.start_time_ns, event.extra_fields.alloc_size))
    return [size for _, size in sorted(changes, key=lambda change: change[0])]
