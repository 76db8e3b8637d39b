"""Tasks for an executor: one problem each, measured by a worker on its own machine."""

import multiprocessing
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from harness.contract.registry import Registry
from harness.measuring.comparison import Comparison
from harness.measuring.environment import environment
from harness.measuring.request import Request
from harness.model.cell import Cell, Environment
from harness.model.errors import ShardbenchError
from harness.model.ids import WorkloadSpec
from harness.model.settings import Settings
from harness.model.topology import Topology

# A worker may have several threads, and two measurements at once disturb each other.
_ONE_AT_A_TIME = threading.Lock()


class Code(NamedTuple):
    """What must be the same for results to be compared: our code, the libraries', Python's."""

    code: str | None
    packages: Mapping[str, str]
    python: str | None


def code_of(environment: Environment) -> Code:
    """Return the code of an environment."""
    return Code(environment.code, environment.packages, environment.python)


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
    stored: tuple[Cell, ...]
    code: Code


def measure(task: Task) -> list[Cell]:
    """Measure a task in this process and its children; returns its cells.

    Raises:
        UsageError: the problem cannot be built.
        ShardbenchError: this process cannot measure, or other code is installed here.
    """
    check_worker(describe(task.settings.sampling.seed), task.code)
    with _ONE_AT_A_TIME:
        here = environment(task.settings.sampling.seed).machine
        cells: list[Cell] = []
        request = Request(
            task.registry().find(task.family),
            WorkloadSpec.parse(task.workload),
            task.topology,
            task.variants,
            task.against,
            task.purpose,
            stored=tuple(each for each in task.stored if each.environment.machine == here),
        )
        # In this order an earlier cell never depends on a later one, should writing be cut short.
        Comparison(request, task.settings, task.registry).run(settled=cells.append)
    return cells


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process: its environment, and whether it may not have children."""

    environment: Environment
    is_daemonic: bool


def describe(seed: int = 0) -> Worker:
    """Describe this process."""
    return Worker(environment(seed), multiprocessing.current_process().daemon)


def check_worker(worker: Worker, code: Code, name: str = "A worker") -> None:
    """Raise ShardbenchError where a worker cannot measure, or would measure other code."""
    if worker.is_daemonic:
        raise ShardbenchError(
            f"{name} may not start processes, which measuring needs; start it with --no-nanny, or "
            "with DASK_DISTRIBUTED__WORKER__DAEMON=False in its environment."
        )
    for what, mine, theirs in zip(Code._fields, code_of(worker.environment), code, strict=True):
        if mine != theirs:
            names = {"code": "code of shardbench or of its families", "packages": "versions"}
            raise ShardbenchError(
                f"{name} has other {names.get(what, what)} than the rest; install the same on all, "
                "since results of different code are not compared."
            )
