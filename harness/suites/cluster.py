"""Measure a suite on the workers of a Dask cluster. Dask is an optional dependency."""

import logging
import multiprocessing
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from msgspec import structs

from harness.contract.registry import Registry, load_registry
from harness.measuring.comparison import Comparison
from harness.measuring.environment import environment
from harness.measuring.request import Job, Request
from harness.model.cell import Cell
from harness.model.errors import ShardbenchError, UsageError, one_line
from harness.model.settings import Settings
from harness.store.cells import CellStore
from harness.store.keys import Key, difference, key_of
from harness.suites.sweep import Finished

_CONNECT_SECONDS = 5
_LOOK_SECONDS = 5
# The number of looks without a worker before giving up; restarting workers need some time.
_PATIENCE_LOOKS = 12

# A worker may have several threads, but simultaneous measurements would disturb each other.
_ONE_AT_A_TIME = threading.Lock()


def describe() -> tuple[str, bool]:
    """Return the key of this process, and whether it may start processes."""
    return str(key_of(environment(0))), not multiprocessing.current_process().daemon


def check_worker(key: str, may_start: bool, wanted: Key, name: str = "A worker") -> None:
    """Raise ShardbenchError if a worker may not start processes or has other code or versions."""
    if not may_start:
        raise ShardbenchError(
            f"{name} may not start processes, which measuring needs; start it with --no-nanny, or "
            "with DASK_DISTRIBUTED__WORKER__DAEMON=False in its environment."
        )
    if what := difference(key, structs.replace(wanted, machine="")):
        raise ShardbenchError(
            f"{name} has {what} than this process; install the same on all, since results of "
            "different code are not compared."
        )


def measure(job: Job, wanted: Key) -> list[Cell]:
    """Measure a problem in this worker process and its child processes; return the new cells.

    Cells that this machine has already stored are not measured again.

    Raises:
        UsageError: the problem cannot be built.
        ShardbenchError: this process may not start processes, or has not the `wanted` key.
    """
    check_worker(*describe(), wanted)
    with _ONE_AT_A_TIME:
        here = environment(0).machine
        request = job.request()
        stored = tuple(cell for cell in request.stored if cell.environment.machine == here)
        cells: list[Cell] = []
        # In the order of `settled`, no cell depends on a later one if only the first are written.
        comparison = Comparison(replace(request, stored=stored), job.settings, job.registry)
        comparison.run(settled=cells.append)
    return cells


@dataclass(frozen=True, slots=True)
class Cluster:
    """The workers of a Dask scheduler: the key of the code, and each machine by worker's name."""

    client: Any
    address: str
    key: Key
    machines: Mapping[str, str]

    def sweep(
        self,
        requests: Sequence[Request],
        store: CellStore,
        settings: Settings,
        registry: Callable[[], Registry] = load_registry,
    ) -> Iterator[Finished]:
        """Measure each request that is not measured yet, as a task of a worker.

        Its cells are stored when the task ends. Dask gives the task of a worker that dies to
        another worker; if it dies again and again, its cells are stored as failed. Raise
        ShardbenchError if no worker is left, or if the results cannot be written.
        """
        store.add()  # fails before the measurement if the file cannot be written
        call = partial(measure, wanted=self.key)
        waiting = {
            self.client.submit(call, request.job(settings, registry), pure=False): request
            for request in requests
            if not request.is_measured
        }
        try:
            while waiting:
                for future in self._ended(list(waiting)):
                    finished = _finished(waiting.pop(future), future, settings, registry)
                    store.add_cells(finished.cells)
                    yield finished
        finally:
            self.client.cancel(list(waiting))

    def _ended(self, futures: Sequence[Any]) -> Collection[Any]:
        """Wait until some futures have ended; raise ShardbenchError if no worker is left."""
        from distributed import wait

        for _ in range(_PATIENCE_LOOKS):
            with suppress(TimeoutError), self.client.as_current():
                ended: set[Any] = wait(futures, _LOOK_SECONDS, "FIRST_COMPLETED").done
                return ended
            with suppress(OSError, TimeoutError, ValueError):  # the scheduler may be gone
                if self.client.nthreads():
                    return ()
        raise ShardbenchError(
            f"No worker is left at {self.address}; what was measured is kept, and the next run "
            "goes on there."
        )


def _finished(
    request: Request, future: Any, settings: Settings, registry: Callable[[], Registry]
) -> Finished:
    try:
        return Finished(request, future.result())
    except ShardbenchError as error:
        return Finished(request, [], str(error))
    except Exception as error:  # an exception of one task must not stop the others
        reason = f"Its worker failed. {one_line(error)}"
        cells = Comparison(request, settings, registry).failed(reason)
        for cell in cells:  # the machine of a failed worker is unknown
            cell.environment = structs.replace(cell.environment, machine=None)
            cell.key = str(structs.replace(Key.parse(cell.key), machine=""))
        return Finished(request, cells)


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """Connect to a Dask scheduler while the block runs, and yield its workers.

    `address` is the address that the scheduler prints. All workers must have the code and the
    versions of this process.

    Raises:
        UsageError: Dask is not installed.
        ShardbenchError: no scheduler answers, it has no workers, or a worker cannot measure.
    """
    try:
        from distributed import Client
        from distributed.comm import get_address_host
    except ImportError:
        raise UsageError(
            "--executor dask needs Dask, which is not installed; pip install 'shardbench[dask]'."
        ) from None
    # Dask's logger is silenced, since the code below reports errors in one sentence.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        get_address_host(address)  # a client with a wrong address would never be closed
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ShardbenchError(
            f"No Dask scheduler answers at {address} within {_CONNECT_SECONDS} s "
            f"({type(error).__name__})."
        ) from None
    try:
        try:
            client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
            workers: dict[str, tuple[str, bool]] = client.run(describe)
        except TimeoutError:
            raise ShardbenchError(
                f"The Dask scheduler at {address} has no workers; start some with dask worker."
            ) from None
        except Exception as error:  # raised in a worker, which may have any packages installed
            raise ShardbenchError(
                f"A worker of {address} cannot run shardbench, which must be installed there: "
                f"{type(error).__name__}."
            ) from None
        wanted = key_of(environment(0))
        for name, described in workers.items():
            check_worker(*described, wanted, f"Worker {name}")
        machines = {name: Key.parse(key).machine for name, (key, _) in workers.items()}
        yield Cluster(client, address, wanted, machines)
    finally:
        client.close(timeout=1)
