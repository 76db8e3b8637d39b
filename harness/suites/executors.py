"""Run tasks on a `concurrent.futures` executor, and an executor that survives dying workers."""

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
# The number of polls without a worker before giving up; restarting workers need some time.
_PATIENCE_LOOKS = 60


def outcomes(
    executor: Executor,
    call: Callable[[T], R],
    tasks: Sequence[T],
    at_once: Callable[[], int],
    begun: Callable[[int], None] = lambda number: None,
) -> Iterator[tuple[int, R | Exception]]:
    """Yield each task's number and the result or exception of its call, in order of completion.

    At most `at_once()` tasks are submitted at a time, so that a stop loses little. If a worker
    dies, its task is retried once. Closing the iterator cancels pending tasks. `begun` is called
    with the number of a task on each attempt. Raise ShardbenchError if `at_once()` is 0 for a
    minute or the executor rejects a task.
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
                try:
                    running[executor.submit(call, tasks[number])] = number
                except RuntimeError as error:  # the executor is shut down or broken
                    raise ShardbenchError(
                        f"The executor takes no more tasks ({one_line(error)}); what was measured "
                        "is kept, and the next run goes on there."
                    ) from None
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
                except Exception as error:  # an exception of one task must not stop the others
                    yield number, error
                else:
                    yield number, result
    finally:
        for future in running:
            future.cancel()


class LocalProcesses(Executor):
    """An executor of local worker processes; if a worker dies, only its current task fails.

    Each worker has its own `ProcessPoolExecutor`, because a dead worker breaks its pool for good;
    the pool is then replaced. The workers end on `shutdown` or when this process ends or is killed.
    """

    def __init__(self, workers: int) -> None:
        """Prepare `workers` workers; the process of each starts with its first task."""
        self._threads = ThreadPoolExecutor(workers)
        self._own = threading.local()
        self._reader, self._writer = multiprocessing.get_context("spawn").Pipe(duplex=False)

    def submit(self, call: Callable[..., R], /, *arguments: Any, **options: Any) -> "Future[R]":
        """Run a function in a worker, which imports it by its name."""
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
        """End the workers: after their tasks if `wait` and not `cancel_futures`, else at once."""
        if wait and not cancel_futures:
            self._threads.shutdown()
        # First, because a worker that is ended would otherwise look dead and its task be retried.
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._writer.close()
        self._threads.shutdown()
        self._reader.close()


def _end_with(reader: Connection) -> None:
    """End this worker process when the parent closes the pipe or dies; ignore SIGINT (ctrl-C)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        multiprocessing.connection.wait([reader])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
