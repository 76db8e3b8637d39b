"""The task of an executor's worker: measure one problem at a time on the worker's machine."""

import multiprocessing
import threading
from dataclasses import dataclass, replace

import msgspec

from harness.measuring.comparison import Comparison
from harness.measuring.environment import environment
from harness.measuring.request import Job
from harness.model.cell import Cell, Environment
from harness.model.errors import ShardbenchError
from harness.store.keys import difference, key_of

# A worker may have several threads, but simultaneous measurements would disturb each other.
_ONE_AT_A_TIME = threading.Lock()


def measure(job: Job, expected: Environment) -> list[Cell]:
    """Measure a problem in this process and its child processes; return the new cells.

    Cells that this machine has already stored are not measured again.

    Raises:
        UsageError: the problem cannot be built.
        ShardbenchError: this process may not start processes, or has other code than `expected`.
    """
    seed = job.settings.sampling.seed
    check_worker(describe(seed), expected)
    with _ONE_AT_A_TIME:
        here = environment(seed).machine
        request = job.request()
        stored = tuple(cell for cell in request.stored if cell.environment.machine == here)
        cells: list[Cell] = []
        # In the order of `settled`, no cell depends on a later one if only the first are written.
        comparison = Comparison(replace(request, stored=stored), job.settings, job.registry)
        comparison.run(settled=cells.append)
    return cells


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process and its environment. A daemonic process may not start processes."""

    environment: Environment
    is_daemonic: bool


def describe(seed: int = 0) -> Worker:
    """Return the environment of this process, and whether it is daemonic."""
    return Worker(environment(seed), multiprocessing.current_process().daemon)


def check_worker(worker: Worker, expected: Environment, name: str = "A worker") -> None:
    """Raise ShardbenchError if a worker may not start processes or has other code."""
    if worker.is_daemonic:
        raise ShardbenchError(
            f"{name} may not start processes, which measuring needs; start it with --no-nanny, or "
            "with DASK_DISTRIBUTED__WORKER__DAEMON=False in its environment."
        )
    wanted = msgspec.structs.replace(key_of(expected), machine="")
    if what := difference(str(key_of(worker.environment)), wanted):
        raise ShardbenchError(
            f"{name} has {what} than the rest; install the same on all, since results of "
            "different code are not compared."
        )
