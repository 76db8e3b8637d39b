"""What an executor runs: one problem, measured by a worker process on its own machine."""

import multiprocessing
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import ShardbenchError
from harness.machine import environment
from harness.measuring.comparison import Comparison, Settings
from harness.model.topology import Topology
from harness.naming import WorkloadSpec
from harness.registry import Registry
from harness.storage.results import Stored

# A worker may have several threads, and two measurements at once disturb each other.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, slots=True)
class Task:
    """A problem and how to measure it, in plain records; `registry` must be importable by name.

    `stored` are cells that the results hold, of any machine; `code` is what the environment of the
    worker must have as well.
    """

    registry: Callable[[], Registry]
    family: str
    workload: str
    topology: Topology
    variants: tuple[str, ...]
    against: str
    purpose: str
    settings: Settings
    stored: tuple[Stored, ...]
    code: Mapping[str, Any]


def measure(task: Task) -> list[dict[str, Any]]:
    """Measure a task in this process and its children; returns the cells as they are stored.

    Raises:
        UsageError: the problem cannot be built.
        ShardbenchError: this process cannot measure, or other code is installed here.
    """
    check_worker(describe(task.settings.sampling.seed), task.code)
    with _ONE_AT_A_TIME:
        here = environment(task.settings.sampling.seed)["machine"]
        records: list[dict[str, Any]] = []
        # In this order an earlier cell never depends on a later one, should writing be cut short.
        Comparison(
            task.registry().find(task.family),
            WorkloadSpec.parse(task.workload),
            task.topology,
            task.variants,
            task.settings,
            task.registry,
            task.purpose,
            task.against,
            [each for each in task.stored if each.machine == here],
        ).run(settled=lambda cell: records.append(cell.record()))
    return records


def describe(seed: int = 0) -> dict[str, Any]:
    """Return this process's environment, and as `daemonic` whether it may not have children."""
    return environment(seed) | {"daemonic": multiprocessing.current_process().daemon}


def check_worker(
    described: Mapping[str, Any], code: Mapping[str, Any], name: str = "A worker"
) -> None:
    """Raise ShardbenchError where a worker cannot measure, or would measure other code."""
    if described["daemonic"]:
        raise ShardbenchError(
            f"{name} may not start processes, which measuring needs; start it with --no-nanny, or "
            "with DASK_DISTRIBUTED__WORKER__DAEMON=False in its environment."
        )
    for key, wanted in code.items():
        if described.get(key) != wanted:
            what = {"code": "code of shardbench or of its families", "packages": "versions"}
            raise ShardbenchError(
                f"{name} has other {what.get(key, key)} than the rest; install the same on all, "
                "since results of different code are not compared."
            )
