"""The program of all child processes: it runs functions, and sends their results to the parent.

Any interpreter runs this file, also one without this project: it imports the standard library
alone. `serve` imports modules once, and forks a process for each job, which calls one function.
`answer` calls the functions of a driver, one request after the other.

A process gets requests through one pipe, whose end means that its parent has ended, and sends
messages, which are pickled, through another; both by `Connection.send_bytes`.
"""

import ctypes
import errno
import faulthandler
import json
import logging
import multiprocessing
import os
import pickle
import re
import resource
import runpy
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from multiprocessing import spawn
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, NoReturn

IS_PROGRAM = __name__ == "__main__"
if IS_PROGRAM:  # the parent knows the classes of messages by this name
    __name__ = "harness.execution.worker"
    sys.modules[__name__] = sys.modules["__main__"]

STATUS = struct.Struct("q")
"""What `serve` writes about a job: first its process id, later its exit code."""

in_server = False
"""Whether this is the fork server, or a job that still imports modules, which start no jobs."""

_GIB = 2**30
# The margin of a memory limit: thread stacks and allocator arenas are reserved, but mostly not
# resident.
_RESERVED = _GIB
_REFUSED = re.compile(r"bad_alloc|can(?:no|')t allocate memory", re.IGNORECASE)
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
_ORPHAN_SECONDS = 10.0
_LONGEST_REASON = 200


@dataclass(frozen=True)
class Stage:
    """The child begins stage `what`, which may take `seconds`; `subject` is often a variant."""

    what: str
    seconds: float
    subject: str = ""


@dataclass(frozen=True)
class Note:
    """A message with any content, such as progress, sent while the work runs."""

    content: Any


@dataclass(frozen=True)
class Result:
    """The value that the work returned."""

    value: Any


@dataclass(frozen=True)
class Failed:
    """The work failed: `reason` is one line, and there is no result.

    A `cause` of `usage` means a UsageError, `not applicable` a NotApplicable, `memory` an exceeded
    memory limit, `time` a stage that took too long, and `error` any other failure. `stage` is the
    stage that failed after `elapsed_s` seconds, and `output` the end of the child's output.
    """

    reason: str
    cause: Literal["error", "usage", "not applicable", "memory", "time"] = "error"
    stage: Stage = Stage("", 0.0)
    elapsed_s: float = 0.0
    output: str = ""

    @property
    def subject(self) -> str:
        """The subject of the failed stage, often a variant's name; empty without one."""
        return self.stage.subject


Message = Stage | Note | Result | Failed


class ForkFailedError(Exception):
    """A fork of the child failed; the child sends `failed`, which has the reason, to its parent."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.reason)
        self.failed = failed


class Report:
    """The pipe on which a child's work sends messages to the parent; it is thread-safe.

    Attributes:
        closing: cleanup functions to call after the result, or the failure, has been sent.
    """

    def __init__(self, pipe: Connection) -> None:
        self.closing: list[Callable[[], None]] = []
        self._pipe, self._lock = pipe, threading.Lock()
        self._owner, self._status = os.getpid(), os.fstat(pipe.fileno())

    def take_over(self, other: "Report | None" = None) -> None:
        """Let a fork use this report; call it in the fork. Send through `other` if one is given."""
        other = other or Report(self._pipe)
        self._pipe, self._lock = other._pipe, other._lock
        self._owner, self._status, self.closing = other._owner, other._status, []

    def send(self, message: Message) -> None:
        """Send a message; if that fails, end this process instead of raising an error."""
        if os.getpid() != self._owner:  # a fork that the work made, which should have exited
            os._exit(1)
        pickled = pickle.dumps(message)
        with self._lock:
            try:
                # If the work has closed the pipe, another file may have its descriptor by now.
                if not os.path.samestat(self._status, os.fstat(self._pipe.fileno())):
                    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
                self._pipe.send_bytes(pickled)
            except OSError as error:
                if error.errno != errno.EPIPE:
                    threading.Event().wait()  # wait for the parent to kill this process
                _end_without_parent()

    def finish(self, work: Callable[[], Any]) -> None:
        """Call `work`, and send its result or its failure."""
        try:
            self.send(Result(work()))
        except ForkFailedError as error:
            self.send(error.failed)
        except BaseException as error:  # the work may raise anything
            self.send(_failure_of(error))


def _failure_of(error: BaseException) -> Failed:
    lift_limit()  # to have room for the message
    with suppress(Exception):
        sys.stdout.flush()
    kind = type(error).__name__
    try:
        if cause := getattr(error, "cause_in_child", None):  # an error of this project, a sentence
            return Failed(str(error), cause)
        text = " ".join(str(error).split())
        if len(text) > _LONGEST_REASON:
            text = text[:_LONGEST_REASON].rsplit(" ", 1)[0] + " ..."
        reason = f"{kind}: {text}" if text else kind
        is_native = isinstance(error, RuntimeError) and mentions_memory_error(str(error))
        is_memory = isinstance(error, MemoryError) or getattr(error, "errno", 0) == errno.ENOMEM
        return Failed(reason, "memory" if is_memory or is_native else "error")
    except BaseException:  # the error's `__str__` is code of the work, and may raise
        return Failed(kind)


def mentions_memory_error(text: str) -> bool:
    """Return whether a process's output, or a native library's error, reports a lack of memory."""
    return _REFUSED.search(text) is not None


def limit_memory(gib: float) -> None:
    """Limit the memory of this process, and of children that it starts, to `gib` and a margin.

    Linux can only limit the memory that a process reserves. The parent also checks the memory that
    is resident.
    """
    has = memory_sizes()
    wanted = has["VmData"] + max(0, round(gib * _GIB) - has["VmRSS"]) + _RESERVED
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most == resource.RLIM_INFINITY or wanted < most:
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


def lift_limit() -> None:
    """Remove this process's memory limit."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def memory_sizes() -> dict[str, int]:
    """Return the sizes of this process's memory in bytes, by their names in proc(5)."""
    lines = (
        line.split() for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    )
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1] == "kB"}


def children(process: int | str = "self") -> Iterator[int]:
    """Yield the child processes of a process."""
    with suppress(OSError):  # it has ended
        for thread in Path(f"/proc/{process}/task").glob("*/children"):
            yield from map(int, thread.read_text().split())


def _adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that they can be found and killed."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_without_parent() -> NoReturn:
    """End this process, and its process group if it leads one, because the parent has ended."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _requests(pipe: Connection) -> "SimpleQueue[bytes]":
    """Return a queue that a thread fills; the thread ends this process if the parent ends."""
    queue: SimpleQueue[bytes] = SimpleQueue()

    def receive() -> None:
        try:
            while True:
                queue.put(pipe.recv_bytes())
        except (EOFError, OSError):
            _end_without_parent()

    threading.Thread(target=receive, daemon=True).start()
    return queue


def serve(control: socket.socket, modules: list[str], path: list[str], main: str | None) -> None:
    """Import modules, and the parent's main module, then fork a process for each job.

    Each job comes as four file descriptors: the pipes for requests, messages, printed output and
    `STATUS`. Import errors are ignored here: the job that needs the module raises the error.
    """
    global in_server
    in_server = True
    # 1. Import, with what is printed kept out of the parent's standard output.
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interrupts
    os.dup2(2, 1)
    _adopt_orphans()
    sys.path[:] = path
    for module in modules:
        with suppress(Exception, SystemExit):
            import_module(module)
    if main is not None:
        with suppress(Exception, SystemExit):
            spawn.import_main_path(main)
    # 2. Wait for jobs, and for the ends of their processes.
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    helpers = set(children())
    jobs: dict[int, int] = {}  # the pipe for the status of each running job, by process id
    while True:
        ready = wait([control, woken])
        if woken in ready:
            os.read(woken, 4096)
            ended = dict(_ended())
            # 3. Kill the orphans of ended jobs: the children of this process that are no jobs.
            # Killing one makes orphans of its own children.
            until = time.monotonic() + _ORPHAN_SECONDS
            while ended.keys() & jobs and time.monotonic() < until:
                orphans = set(children()) - helpers - jobs.keys()
                if not orphans:
                    break
                for orphan in orphans:
                    with suppress(ProcessLookupError):
                        os.kill(orphan, signal.SIGKILL)
                time.sleep(0.001)
                ended.update(_ended())
            for pid in ended.keys() & jobs:
                _write_status(jobs.pop(pid), ended[pid], is_last=True)
        if control in ready:
            data, pipes, _, _ = socket.recv_fds(control, 1, 4)
            if not data:  # the parent has ended, which the jobs see themselves
                os._exit(0)
            *used, status = pipes
            pid = os.fork()
            if not pid:
                try:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    control.close()
                    for pipe in (woken, wake, status, *jobs.values()):
                        os.close(pipe)
                    _run_job(*used)
                finally:  # a job must never go on as a server
                    os._exit(1)
            for pipe in used:
                os.close(pipe)
            jobs[pid] = status
            _write_status(status, pid)


def _ended() -> Iterator[tuple[int, int]]:
    """Yield the process id and the exit code of each child process that has ended."""
    with suppress(ChildProcessError):  # there are no children
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            yield pid, os.waitstatus_to_exitcode(status)


def _write_status(pipe: int, number: int, is_last: bool = False) -> None:
    with suppress(OSError):  # the parent waits for it no longer
        os.write(pipe, STATUS.pack(number))
    if is_last:
        os.close(pipe)


def _run_job(requests: int, messages: int, output: int) -> NoReturn:
    """Call one function with its arguments and a `Report`, send its outcome, and exit."""
    # 1. Become a process group, which the parent can kill, and the parent of its orphans.
    os.setsid()
    _adopt_orphans()
    # 2. Print into the pipe, line-buffered, so that no printed line is lost when it is killed.
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    sys.stdout, sys.stderr = (
        open(standard, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115 - for the process's life
        for standard in (1, 2)
    )
    faulthandler.enable(file=2, all_threads=False)
    # No core dumps, which are gigabytes for every crash.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    report = Report(Connection(messages, readable=False))
    queue = _requests(Connection(requests, writable=False))

    def work() -> Any:
        global in_server
        # 3. Restore the parent's arguments, folder and main module before unpickling the work.
        prepared, pickled = pickle.loads(queue.get())
        spawn.prepare(prepared)
        in_server = False
        # Processes that the work starts begin as in a program of its own, not as this one did.
        multiprocessing.set_start_method(None, force=True)
        function, arguments, memory_gib = pickle.loads(pickled)
        from harness.execution.logged import LoggedOnce  # which is not on every interpreter's path

        logged = LoggedOnce(lambda text: sys.stderr.write(f"{text}\n"))
        logging.basicConfig(handlers=[logged], force=True)  # a library may have called it
        limit_memory(memory_gib)
        return function(*arguments, report)

    report.finish(work)
    for close in report.closing:
        with suppress(BaseException):  # the result has been sent; cleanup may fail
            close()
    with suppress(BaseException):
        sys.stdout.flush()
    os._exit(0)  # without waiting for threads


def answer(driver: str, requests: int, messages: int) -> NoReturn:
    """Answer requests by the functions in a driver's HANDLERS, until the parent ends.

    Requests and answers are JSON texts, since another interpreter may not have the same types.
    The driver is a file that ends in `.py`, or a module's name. If it cannot be loaded, every
    request fails with that error.
    """
    for pipe in (requests, messages):  # the library's own children must not keep them open
        os.set_inheritable(pipe, False)
    os.dup2(2, 1)
    report = Report(Connection(messages, readable=False))
    queue = _requests(Connection(requests, writable=False))

    @cache
    def handlers() -> Mapping[str, Callable[[dict[str, Any]], Any]]:
        if driver.endswith(".py"):
            return runpy.run_path(driver)["HANDLERS"]  # type: ignore[no-any-return]
        return import_module(driver).HANDLERS  # type: ignore[no-any-return]

    def work() -> str:
        request = json.loads(queue.get())
        return json.dumps(handlers()[request.pop("kind")](request))

    while True:
        report.finish(work)


if IS_PROGRAM:
    match sys.argv[1:]:
        case ["serve", control, settings]:
            sys.argv[1:] = []
            serve(socket.socket(fileno=int(control)), **json.loads(settings))
        case ["answer", driver, requests, messages]:
            answer(driver, int(requests), int(messages))
