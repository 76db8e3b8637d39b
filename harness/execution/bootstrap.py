"""Set up the fork server, which child processes are forked from, and each child process."""

import ctypes
import errno
import faulthandler
import json
import logging
import multiprocessing
import os
import resource
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from multiprocessing import spawn
from multiprocessing.connection import Connection, wait
from typing import Any

from harness.execution.lines import write_line
from harness.execution.logged import LoggedOnce
from harness.execution.memory import is_memory_error, lift_limit, limit_memory
from harness.execution.messages import Closed, Failed, ForkFailedError, Message, Result, encode
from harness.model.errors import NotApplicable, ShardbenchError, UsageError, one_line

PRELOAD = "SHARDBENCH_PRELOAD"

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


class Report:
    """The connection on which a child's work sends messages to the parent; it is thread-safe.

    Attributes:
        closing: cleanup functions to call after the result, or the failure, has been sent.
    """

    def __init__(self, pipe: Connection) -> None:
        self.closing: list[Callable[[], None]] = []
        self._pipe, self._lock = pipe, threading.Lock()
        self._owner, self._status = os.getpid(), os.fstat(pipe.fileno())

    def take_over(self, pipe: int | None = None) -> None:
        """Let a fork use this connection; call it in the fork. Send to `pipe` if one is given."""
        if pipe is not None:
            os.dup2(pipe, self._pipe.fileno())
            self._status = os.fstat(pipe)
        self._owner, self._lock = os.getpid(), threading.Lock()
        self.closing = []

    def send(self, message: Message) -> None:
        """Send a message; if that fails, end this process instead of raising an error."""
        if os.getpid() != self._owner:  # a fork that the work made, which should have exited
            os._exit(1)
        line = encode(message)
        with self._lock:
            try:
                # If the work has closed the pipe, another file may have its descriptor by now.
                if not os.path.samestat(self._status, os.fstat(self._pipe.fileno())):
                    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
                write_line(self._pipe, line)
            except OSError as error:
                if error.errno != errno.EPIPE:
                    threading.Event().wait()  # wait for the parent to kill this process
                os.killpg(0, signal.SIGKILL)  # the parent is gone


def run_child(
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
    messages: Connection,
    output: Connection,
    memory_gib: float,
) -> None:
    """In a child process: call `work` with the arguments and a `Report`, and send its outcome."""
    os.setsid()  # so that the parent can kill this process and its children as one group
    adopt_orphans()
    _print_into(output)
    faulthandler.enable(file=2, all_threads=False)
    with suppress(OSError, ValueError):  # no core dumps, which are gigabytes for every crash
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interrupts
    limit_memory(memory_gib)
    # Processes that the work starts begin as in a program of its own, not as this one did.
    multiprocessing.set_start_method(None, force=True)
    report = Report(messages)
    logged = LoggedOnce(lambda text: sys.stderr.write(f"{text}\n"))
    logging.basicConfig(handlers=[logged], force=True)  # an imported library may have called it
    report.closing.append(logged.close)
    try:
        report.send(Result(work(*arguments, report)))
    except BaseException as error:  # the work may raise anything
        report.send(error.failed if isinstance(error, ForkFailedError) else failure_of(error))
    for close in report.closing:
        with suppress(BaseException):  # the result has been sent; cleanup may fail
            close()
    report.send(Closed())


def failure_of(error: BaseException) -> Failed:
    """Convert an error into a `Failed` message; lift the memory limit first, to have room."""
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
    except BaseException:  # the error's `__str__` is code of the work, and may raise
        return Failed(type(error).__name__)


def _print_into(output: Connection) -> None:
    for standard in (1, 2):
        os.dup2(output.fileno(), standard)
    output.close()
    # Line-buffered, so that no printed line is lost when this process is killed.
    sys.stdout, sys.stderr = (
        open(standard, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115 - for the process's life
        for standard in (1, 2)
    )


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that they can be found and killed."""
    with suppress(OSError, AttributeError):  # a system without prctl
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_with_parent() -> None:
    """Wait for the parent to end, for any reason; then kill this process and its children."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)


def restore_variables(variables: Mapping[str, str | None]) -> None:
    """Set environment variables to earlier values; None unsets one."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _become_server(
    modules: list[str], main: str | None, path: list[str], variables: dict[str, str | None]
) -> None:
    """Set this process up as the fork server, and import the modules that children need.

    The parent's main module is also imported here, because each child would import it otherwise.
    Import errors are ignored here, because most of them would end the server and so all children;
    the child that needs the module raises the error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interrupts
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.dup2(2, 1)  # imported modules may print
    adopt_orphans()
    # multiprocessing does not know the adopted orphans, and warns when one ends.
    warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")
    restore_variables(variables)  # programs that children start search modules as usual
    sys.path = path
    for module in modules:
        with suppress(Exception, SystemExit):
            import_module(module)
    if main is not None:
        server: Any = multiprocessing.current_process()
        server._inheriting = True  # makes multiprocessing refuse to start processes during import
        with suppress(Exception, SystemExit):
            spawn.import_main_path(main)
        del server._inheriting


# Only the server is started with this variable; its children must not become servers.
if (_preload := os.environ.pop(PRELOAD, None)) is not None:
    _become_server(**json.loads(_preload))
