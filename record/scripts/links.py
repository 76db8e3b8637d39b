"""Print how fast processes exchange tensors: an all-to-all and an all-reduce at sizes of plans.

`python record/scripts/links.py` starts two processes on gloo; with `--device cuda`, one on each
GPU, on nccl. A row has the bytes of a rank's tensor and the median milliseconds. The last rows have
the fit `start + bytes / bandwidth`, by least squares of relative errors, and its mean error. The
bandwidth of the all-to-all is written to stderr as a line for a machine's `[figures]`, with ends
of its 95 % interval over sizes drawn with replacement. Plans by the machine then use it.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from common import device_of, print_table
from msgspec import json

from harness.topologies.lookup import GB
from planners.embedding.estimates.machines import LINKS
from reports.core.formatting import figure

SIZES = [2**power for power in range(12, 27, 2)]  # bytes of a rank
UNTIMED, TIMED, RESAMPLED = 3, 15, 200
COLUMNS = ("collective", "bytes", "ms")


def measure(rank: int, ranks: int, device: str, folder: str) -> None:
    """Measure as one rank; rank 0 writes the median seconds by collective and size."""
    torch.set_num_threads(1)
    place = torch.device(device, rank) if device == "cuda" else torch.device(device)
    if device == "cuda":
        torch.cuda.set_device(place)
    backend = "nccl" if device == "cuda" else "gloo"
    store = f"file://{folder}/store"
    dist.init_process_group(backend, init_method=store, rank=rank, world_size=ranks)

    def seconds(collective: Callable[[], object]) -> float:
        times = []
        for _ in range(UNTIMED + TIMED):
            dist.barrier()
            begun = time.perf_counter()
            collective()
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begun)
        return statistics.median(times[UNTIMED:])

    measured: dict[str, list[float]] = {"all-to-all": [], "all-reduce": []}
    for size in SIZES:
        sent = torch.ones(size // 4 // ranks * ranks, device=place)
        received = torch.empty_like(sent)
        measured["all-to-all"].append(seconds(lambda: dist.all_to_all_single(received, sent)))  # noqa: B023
        measured["all-reduce"].append(seconds(lambda: dist.all_reduce(received)))  # noqa: B023
    if rank == 0:
        Path(folder, "seconds").write_bytes(json.encode(measured))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # at Python's own end, threads of gloo's may abort the process


def fit(sizes: Sequence[int], seconds: Sequence[float]) -> tuple[float, float, float]:
    """Return the start in ms, the bandwidth in bytes per ms, and the mean relative error."""
    terms = np.array([[1.0, size] for size in sizes]) / (1000 * np.array(seconds)[:, None])
    (start, per_byte), *_ = np.linalg.lstsq(terms, np.ones(len(sizes)), rcond=None)
    error = float(np.abs(terms @ (start, per_byte) - 1).mean())
    return float(start), float(1 / per_byte), error


def machine_line(seconds: Sequence[float]) -> str:
    """Return the line of a machine's file with the bandwidth of all-to-alls of `SIZES` bytes."""
    rng, drawn = np.random.default_rng(0), []
    for _ in range(RESAMPLED):
        chosen = rng.integers(0, len(SIZES), len(SIZES))
        if len(set(chosen)) > 1:  # a line needs two sizes
            drawn.append(fit([SIZES[n] for n in chosen], [seconds[n] for n in chosen])[1])
    bandwidth = fit(SIZES, seconds)[1]
    low, high = np.percentile(drawn, (2.5, 97.5))
    ends = (bandwidth, min(low, bandwidth), max(high, bandwidth))
    return f'"{LINKS}" = [{", ".join(f"{end:.1f}" for end in ends)}]'


def main() -> None:
    """Measure, fit and print."""
    device = device_of(__doc__)
    ranks = torch.cuda.device_count() if device == "cuda" else 2
    with TemporaryDirectory() as folder:
        processes.spawn(measure, (ranks, device, folder), ranks)
        measured = json.decode(Path(folder, "seconds").read_bytes(), type=dict[str, list[float]])
    rows: list[tuple[str, str, str]] = []
    for name, seconds in measured.items():
        rows += [(name, f"{n:,}", figure(1000 * s)) for n, s in zip(SIZES, seconds, strict=True)]
    for name, seconds in measured.items():
        start, bandwidth, error = fit(SIZES, seconds)
        fitted = f"{start:.3g} + bytes / ({bandwidth / GB:.3g} GB/s), error {error:.1%}"
        rows.append((f"{name}, fitted", "-", fitted))
    print_table(COLUMNS, rows)
    print(machine_line(measured["all-to-all"]), file=sys.stderr)


if __name__ == "__main__":
    main()
