"""Tasks over any `concurrent.futures` executor, and one that survives the death of its workers."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from harness.model.errors import ShardbenchError, one_line

T = TypeVar("T")
R = TypeVar("R")

WORKER_DIED = (BrokenExecutor, CancelledError)
_ATTEMPTS = 2
_LOOK_SECONDS = 1.0
# Workers that are restarted need this long to be back.
_PATIENCE_LOOKS = 60


def outcomes(
    executor: Executor,
    call: Callable[[T], R],
    tasks: Sequence[T],
    at_once: Callable[[], int],
    begun: Callable[[int], None] = lambda number: None,
) -> Iterator[tuple[int, R | Exception]]:
    """Yield the number of each task with what its call returned or raised, as they end.

    No more than `at_once()` are with the executor at a time, so that a stop loses little. A task is
    tried once more where its worker dies. On leaving, unfinished tasks are cancelled. Raises
    ShardbenchError where `at_once()` was 0 for a minute, or the executor takes no more tasks.
    """
    waiting = deque(range(len(tasks)))
    attempts = [0] * len(tasks)
    running: dict[Future[R], int] = {}
    idle = 0
    try:
        while waiting or running:
            room = at_once()
            idle = 0 if room else idle + 1
            if idle > _PATIENCE_LOOKS:
                raise ShardbenchError(
                    "No worker is left; what was measured is kept, and the next run goes on there."
                )
            while waiting and len(running) < room:
                number = waiting.popleft()
                attempts[number] += 1
                begun(number)
                running[_submitted(executor, call, tasks[number])] = number
            if not running:
                threading.Event().wait(_LOOK_SECONDS)
            ended, _ = wait(running, _LOOK_SECONDS, FIRST_COMPLETED)
            for future in ended:
                number = running.pop(future)
                try:
                    result = future.result()
                except WORKER_DIED as error:
                    if attempts[number] < _ATTEMPTS:
                        waiting.appendleft(number)
                    else:
                        yield number, error
                except Exception as error:  # whatever the call raises is its task's alone
                    yield number, error
                else:
                    yield number, result
    finally:
        for future in running:
            future.cancel()


def _submitted(executor: Executor, call: Callable[[T], R], task: T) -> "Future[R]":
    try:
        return executor.submit(call, task)
    except RuntimeError as error:  # it is shut down, or broken for good
        raise ShardbenchError(
            f"The executor takes no more tasks ({one_line(error)}); what was measured is kept, and "
            "the next run goes on there."
        ) from None


class LocalProcesses(Executor):
    """Worker processes on this machine, each alone: the death of one costs the task it had.

    (The death of a worker breaks a `ProcessPoolExecutor` for good, so each has its own, which is
    replaced.) The processes end with this one, however it ends, and on `shutdown`.
    """

    def __init__(self, workers: int) -> None:
        """Start no process yet: each is started with its first task."""
        self._threads = ThreadPoolExecutor(workers)
        self._own = threading.local()
        self._reader, self._writer = multiprocessing.get_context("spawn").Pipe(duplex=False)

    def submit(self, call: Callable[..., R], /, *arguments: Any, **options: Any) -> "Future[R]":
        """Run a function that is importable by name in a worker."""
        return self._threads.submit(self._run, call, arguments, options)

    def _run(self, call: Callable[..., R], arguments: Any, options: Any) -> R:
        pool = getattr(self._own, "pool", None)
        if pool is None:
            pool = self._own.pool = ProcessPoolExecutor(
                1, multiprocessing.get_context("spawn"), _end_with, (self._reader,)
            )
        try:
            result: R = pool.submit(call, *arguments, **options).result()
        except BrokenExecutor:
            self._own.pool = None
            raise
        return result

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers, at once unless `wait` lets their tasks end."""
        if wait and not cancel_futures:
            self._threads.shutdown()
        # Before the workers end, so that the death of none is answered by trying its task again.
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._writer.close()
        self._threads.shutdown()
        self._reader.close()


def _end_with(reader: Connection) -> None:
    """Worker: end as soon as nobody holds the other end of a pipe, and leave ctrl-C to its user."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        multiprocessing.connection.wait([reader])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
