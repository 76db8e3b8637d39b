"""Set up the server that children are forked from, and each child before its work begins."""

import ctypes
import errno
import faulthandler
import json
import multiprocessing
import os
import resource
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from multiprocessing import spawn
from multiprocessing.connection import Connection, wait
from typing import Any

from harness.execution.lines import write_line
from harness.execution.memory import is_memory_error, lift_limit, limit_memory
from harness.execution.messages import (
    Closed,
    Failed,
    ForkFailedError,
    Message,
    Result,
    encode,
)
from harness.model.errors import NotApplicable, ShardbenchError, UsageError, one_line

PRELOAD = "SHARDBENCH_PRELOAD"

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


class Report:
    """The connection of a child's work to its parent; any of its threads may use it.

    Attributes:
        closing: called once the parent knows the result, or why there is none.
    """

    def __init__(self, pipe: Connection) -> None:
        self.closing: list[Callable[[], None]] = []
        self._pipe, self._lock = pipe, threading.Lock()
        self._owner, self._status = os.getpid(), os.fstat(pipe.fileno())

    def take_over(self, pipe: int | None = None) -> None:
        """Report from this process, a fork of the one that did; to another pipe if one is given."""
        if pipe is not None:
            os.dup2(pipe, self._pipe.fileno())
            self._status = os.fstat(pipe)
        self._owner, self._lock = os.getpid(), threading.Lock()
        self.closing = []

    def send(self, message: Message) -> None:
        """Send a message; this process ends where it cannot."""
        if os.getpid() != self._owner:  # a fork that went on where it should have ended
            os._exit(1)
        line = encode(message)
        with self._lock:
            try:
                # Where the work has closed it, a file of its own may have its number by now.
                if not os.path.samestat(self._status, os.fstat(self._pipe.fileno())):
                    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
                write_line(self._pipe, line)
            except OSError as error:
                if error.errno != errno.EPIPE:
                    threading.Event().wait()  # the parent has noticed and stops this process
                os.killpg(0, signal.SIGKILL)  # the parent is gone


def run_child(
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
    messages: Connection,
    output: Connection,
    memory_gib: float,
) -> None:
    """Child process: call `work` with its arguments and a `Report`, and send what comes of it."""
    os.setsid()  # so that the parent can stop this process together with its own children
    adopt_orphans()
    _print_into(output)
    faulthandler.enable(file=2, all_threads=False)
    with suppress(OSError, ValueError):  # gigabytes on the disk for every crash
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    limit_memory(memory_gib)
    report = Report(messages)
    try:
        report.send(Result(work(*arguments, report)))
    except BaseException as error:  # it may raise anything
        report.send(error.failed if isinstance(error, ForkFailedError) else failure_of(error))
    for close in report.closing:
        with suppress(BaseException):  # the result is known; the rest ends with the process
            close()
    report.send(Closed())


def failure_of(error: BaseException) -> Failed:
    """Return an error as the message that there is no result, once memory is allowed again."""
    lift_limit()
    if os.environ.get("SHARDBENCH_TRACEBACK"):
        traceback.print_exc()
    with suppress(Exception):
        sys.stdout.flush()
    match error:
        case NotApplicable():
            return Failed(str(error), "not applicable")
        case UsageError():
            return Failed(str(error), "usage")
        case ShardbenchError():
            return Failed(str(error))
    try:
        return Failed(one_line(error), "memory" if is_memory_error(error) else "error")
    except BaseException:  # even its text is code of the work
        return Failed(type(error).__name__)


def _print_into(output: Connection) -> None:
    for standard in (1, 2):
        os.dup2(output.fileno(), standard)
    output.close()
    # By lines, so that no output is lost when this process is stopped.
    sys.stdout, sys.stderr = (
        open(standard, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115 - for the process's life
        for standard in (1, 2)
    )


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that they can be found and stopped."""
    with suppress(OSError, AttributeError):  # a system without it
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_with_parent() -> None:
    """End this process and its children as soon as the parent has ended, for any reason."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)


def _become_server(modules: list[str], main: str | None, path: list[str]) -> None:
    """Import what children need, once, in the process that they are forked from.

    Each child would also import the parent's main module, from its file. What cannot be imported is
    left to the child that needs it: in the server any error but ImportError would end all children.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.dup2(2, 1)  # imported modules may print
    adopt_orphans()
    # Orphans that it adopted end, and it knows nothing of them.
    warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")
    sys.path = path
    for module in modules:
        with suppress(Exception, SystemExit):
            import_module(module)
    if main is not None:
        server: Any = multiprocessing.current_process()
        server._inheriting = True  # so that a main module can start no process
        with suppress(Exception, SystemExit):
            spawn.import_main_path(main)
        del server._inheriting


# Only the server is started with it; processes that it starts must not become servers.
if (_preload := os.environ.pop(PRELOAD, None)) is not None:
    _become_server(**json.loads(_preload))
