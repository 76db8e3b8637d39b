"""The work of an executor's workers: each measures one problem at a time on its own machine."""

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

# A worker may have several threads, and two measurements at once disturb each other.
_ONE_AT_A_TIME = threading.Lock()


class Code(NamedTuple):
    """The code that compared results must have in common: ours, the libraries', Python's."""

    code: str | None
    packages: Mapping[str, str]
    python: str | None


def code_of(environment: Environment) -> Code:
    """Return the code of an environment."""
    return Code(environment.code, environment.packages, environment.python)


def measure(job: Job, code: Code) -> list[Cell]:
    """Measure a problem in this process and its children; returns its cells.

    Of the cells that the results hold already, those of this machine are not measured again. `code`
    must be the code that is installed here.

    Raises:
        UsageError: the problem cannot be built.
        ShardbenchError: this process cannot measure, or other code is installed here.
    """
    seed = job.settings.sampling.seed
    check_worker(describe(seed), code)
    with _ONE_AT_A_TIME:
        here = environment(seed).machine
        request = job.request()
        stored = tuple(cell for cell in request.stored if cell.environment.machine == here)
        cells: list[Cell] = []
        # In this order an earlier cell never depends on a later one, should writing be cut short.
        comparison = Comparison(replace(request, stored=stored), job.settings, job.registry)
        comparison.run(settled=cells.append)
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
