"""The task of an executor's worker: measure one problem at a time on the worker's machine."""

import multiprocessing
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from harness.measuring.comparison import Comparison
from harness.measuring.environment import environment
from harness.measuring.request import Job
from harness.model.cell import Cell, Environment
from harness.model.errors import ShardbenchError

# A worker may have several threads, but simultaneous measurements would disturb each other.
_ONE_AT_A_TIME = threading.Lock()


class Code(NamedTuple):
    """The versions that comparable results must share: shardbench, packages and Python."""

    code: str | None
    packages: Mapping[str, str]
    python: str | None


def code_of(environment: Environment) -> Code:
    """Return the versions of shardbench, packages and Python in an environment."""
    return Code(environment.code, environment.packages, environment.python)


def measure(job: Job, code: Code) -> list[Cell]:
    """Measure a problem in this process and its child processes; return the new cells.

    Cells that this machine has already stored are not measured again.

    Raises:
        UsageError: the problem cannot be built.
        ShardbenchError: this process may not start processes, or its code is not `code`.
    """
    seed = job.settings.sampling.seed
    check_worker(describe(seed), code)
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


def check_worker(worker: Worker, code: Code, name: str = "A worker") -> None:
    """Raise ShardbenchError if a worker may not start processes or has other code than `code`."""
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
