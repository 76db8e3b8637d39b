"""Measure on the workers of a Dask cluster. Dask is an optional dependency."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import structs

from harness.model.errors import ShardbenchError, UsageError
from harness.suites.sweep import Workers
from harness.suites.tasks import Worker, check_worker, describe

_CONNECT_SECONDS = 5


@contextmanager
def connected(address: str, code: str | None) -> Iterator[Workers]:
    """Connect to a Dask scheduler while the block runs, and yield its workers.

    `address` is the address that the scheduler prints. `code` is the hash of the code in this
    process, which all workers must have too.

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
        described = _described(client, address)
        first = next(iter(described.values())).environment
        wanted = structs.replace(first, code=code)
        for name, found in described.items():
            check_worker(found, wanted, f"Worker {name}")
        yield Workers(
            first,
            client.get_executor(pure=False),
            lambda: _count(client, address),
            {name: found.environment.machine or "" for name, found in described.items()},
            several=True,
        )
    finally:
        client.close(timeout=1)


def _described(client: Any, address: str) -> dict[str, Worker]:
    try:
        client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
    except TimeoutError:
        raise ShardbenchError(
            f"The Dask scheduler at {address} has no workers; start some with dask worker."
        ) from None
    try:
        found: dict[str, Worker] = client.run(describe)
    except Exception as error:  # raised in a worker, which may have any packages installed
        raise ShardbenchError(
            f"A worker of {address} cannot run shardbench, which must be installed there: "
            f"{type(error).__name__}."
        ) from None
    return found


def _count(client: Any, address: str) -> int:
    try:
        return len(client.nthreads())
    except (OSError, TimeoutError, ValueError) as error:
        raise ShardbenchError(
            f"The Dask scheduler at {address} is gone ({type(error).__name__}); what was measured "
            "is kept, and the next run goes on there."
        ) from None
