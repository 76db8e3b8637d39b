"""Child processes from the parent's side: start one, hear it, and end it with all it started."""

import os
import pickle
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, get_context
from multiprocessing.connection import Connection, wait
from typing import Any, get_args

import psutil

from harness.execution.bootstrap import enclosed
from harness.execution.memory import resident, says_refused
from harness.execution.messages import Failed, Message
from harness.execution.output import Output
from harness.execution.preload import PRELOAD
from harness.model.errors import ShardbenchError
from harness.model.machine import GIB, default_memory_gib

_START_SECONDS = 600.0  # torch is imported first, and a machine may be busy
_END_SECONDS = 10.0
_EXIT_CODE_SECONDS = 1.0
_LOOK_AT_MEMORY_SECONDS = 0.25
_ORPHAN_ROUNDS = 20
_CHUNK = 1 << 20
_LONGEST_MESSAGE = 256 * 2**20
_HEADER = struct.Struct("!i")  # how multiprocessing's connections begin a message
_NO_MESSAGE = Failed("The child process sent something that is no message.")

_preloaded: tuple[str, ...] = ()
_imported: frozenset[str] = frozenset()  # what the server that runs was told to import
_running: set[int] = set()
_starting = threading.Lock()


class _Inbox:
    """The messages of a child, put together from what has arrived; it never waits for the rest."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._arrived = bytearray()
        self.is_open = True

    def fileno(self) -> int:
        return self._connection.fileno()

    def read(self) -> None:
        chunk = os.read(self.fileno(), _CHUNK)
        self.is_open = bool(chunk)
        self._arrived += chunk

    def next(self) -> Message | None:
        if len(self._arrived) < _HEADER.size:
            return None
        (length,) = _HEADER.unpack_from(self._arrived)
        if not 0 < length < _LONGEST_MESSAGE:
            return _NO_MESSAGE
        end = _HEADER.size + length
        if len(self._arrived) < end:
            return None
        content = bytes(self._arrived[_HEADER.size : end])
        del self._arrived[:end]
        try:
            message: Message = pickle.loads(content)
        except Exception:  # it may be anything that a variant has written there
            return _NO_MESSAGE
        return message if isinstance(message, get_args(Message)) else _NO_MESSAGE


class Child:
    """A child process and the messages it sends.

    Raises:
        ShardbenchError: no process can be started.
    """

    def __init__(
        self, work: Callable[..., None], *arguments: Any, memory_gib: float | None = None
    ) -> None:
        self.memory_gib = default_memory_gib() if memory_gib is None else memory_gib
        context = get_context("forkserver")
        connection, their_connection = context.Pipe(duplex=False)
        printed, their_output = context.Pipe(duplex=False)
        self._connection = connection
        self._inbox, self._output = _Inbox(connection), Output(printed)
        self._looked_at_memory = time.monotonic()
        self._process = context.Process(
            target=enclosed,
            args=(work, arguments, their_connection, their_output, self.memory_gib),
            daemon=False,
        )
        try:
            _start(self._process)
        except BaseException:
            self._connection.close()
            self._output.end()
            raise
        finally:
            their_connection.close()
            their_output.close()

    def receive(self, timeout: float) -> Message | None:
        """Return the next message, or None after `timeout` seconds; a dead child is Failed."""
        until = time.monotonic() + timeout
        while True:
            if (message := self._inbox.next()) is not None:
                return message
            ended = self._wait(until - time.monotonic())
            if (message := self._inbox.next()) is not None:
                return message
            if ended:
                return self._ended()
            if time.monotonic() >= until:
                return None

    def _wait(self, timeout: float) -> bool:
        """Read what arrives within `timeout` seconds; returns whether no more messages can."""
        sources: list[Any] = [self._process.sentinel]
        sources += [each for each in (self._inbox, self._output) if each.is_open]
        ready: list[Any] = wait(sources, max(0.0, timeout))
        if self._output in ready:
            self._output.read()
        if self._inbox in ready:
            self._inbox.read()
            return not self._inbox.is_open
        # What the child forked may keep the pipe open, so its end is waited for beside it.
        return self._process.sentinel in ready or not self._inbox.is_open

    def _ended(self) -> Failed:
        self._process.join(_EXIT_CODE_SECONDS)
        code = self._process.exitcode
        if code is None:
            return Failed("It closed the connection of its child process.")
        reason = f"The child process {how_it_ended(code)} without a result"
        if code < 0 and says_refused(self.printed()):
            reason += f", refused memory; its memory limit is {self.memory_gib:g} GiB"
        return Failed(f"{reason}.")

    def printed(self) -> str:
        """Return the last that the child has printed, with escapes for control characters."""
        return self._output.last()

    def is_beyond_memory(self) -> bool:
        """Whether the child and all that it started have more memory than their limit.

        It looks a few times a second at most, and says no in between.
        """
        now = time.monotonic()
        if now - self._looked_at_memory < _LOOK_AT_MEMORY_SECONDS or self._process.pid is None:
            return False
        self._looked_at_memory = now
        return resident(self._process.pid) > self.memory_gib * GIB

    def stop(self) -> None:
        """End the child and whatever it started."""
        pid = self._process.pid
        if pid is not None:
            try:  # also where the child is gone: its group may live on
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:  # it has not made its group yet, or all are gone
                with suppress(ProcessLookupError):
                    self._process.kill()
            self._process.join(_END_SECONDS)
            _end_orphans(pid)
        self._connection.close()
        self._output.end()


@contextmanager
def child(
    work: Callable[..., None], *arguments: Any, memory_gib: float | None = None
) -> Iterator[Child]:
    """Start a child process and stop it on leaving, whatever happens.

    Args:
        work: what it does; called with the arguments and the connection to send messages through.
        arguments: what is handed over, as far as it can be pickled.
        memory_gib: how much memory it may have, in GiB; 90 % of the machine's where it is None.
    """
    process = Child(work, *arguments, memory_gib=memory_gib)
    try:
        yield process
    finally:
        process.stop()


def how_it_ended(code: int) -> str:
    """Return in words how a process ended, by its exit code: minus the signal that killed it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:  # one of those without a name
        return f"was killed by signal {-code}"


def start_server(preload: tuple[str, ...]) -> None:
    """Start the process that children are forked from, with heavy modules imported once.

    Hash randomisation is off in it: torchrec enumerates options in the order of a set of strings,
    so plans with ties would otherwise differ from run to run. A server that has not imported these
    modules is ended first, unless it has children: each would import them for itself.
    """
    global _preloaded
    with _starting:
        if not _imported.issuperset(preload) and not _running:
            _end_server()
        _preloaded = preload
        _ensure_server()


def _end_server() -> None:
    server = _server_pid()
    if server is not None:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(server, signal.SIGKILL)
            os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)  # multiprocessing asks for it too


def _ensure_server() -> None:
    """Start it with its settings where it does not run, or does no more: a child may end it."""
    global _imported
    server = _server_pid()
    settings = {"PYTHONHASHSEED": "0", PRELOAD: " ".join(_preloaded)}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        get_context("forkserver").set_forkserver_preload(
            ["harness.measuring.jobs", "harness.execution.preload"]
        )
        forkserver.ensure_running()
        if _server_pid() != server:
            _imported = frozenset(_preloaded)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _server_pid() -> int | None:
    pid: int | None = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    return pid


def _start(process: Any) -> None:
    """Start a process, unless the server does not answer: what it imports may never end."""
    with _starting:
        _ensure_server()
        server = _server_pid()
        is_late = threading.Event()

        def end_server() -> None:
            is_late.set()
            if server is not None:
                with suppress(ProcessLookupError):
                    os.kill(server, signal.SIGKILL)

        watch = threading.Timer(_START_SECONDS, end_server)
        watch.daemon = True
        watch.start()
        try:
            process.start()
            _running.add(process.pid)
        except (EOFError, OSError) as error:
            why = f"took longer than {_START_SECONDS:g} s" if is_late.is_set() else "failed"
            raise ShardbenchError(
                f"Starting a child process {why}; what is imported first is: "
                f"{' '.join(_preloaded) or 'nothing'}."
            ) from error
        finally:
            watch.cancel()


def _end_orphans(ended: int) -> None:
    """End what left its process group and lost its parent: the server has adopted it."""
    _running.discard(ended)
    server = _server_pid()
    for _ in range(_ORPHAN_ROUNDS):  # one that is ended leaves its own children behind
        with _starting:
            orphans = _orphans(server)
        if not orphans:
            return
        for orphan in orphans:
            with suppress(psutil.Error):
                orphan.kill()
        psutil.wait_procs(orphans, timeout=1.0)


def _orphans(server: int | None) -> list[psutil.Process]:
    """Return the living children of the server that descend from a child which is gone.

    A child has a session of its own, and what descends from it can not come back to the server's.
    """
    if server is None:
        return []
    orphans = []
    with suppress(psutil.Error, ProcessLookupError):  # the server is gone
        session = os.getsid(server)
        for each in psutil.Process(server).children():
            with suppress(psutil.Error, ProcessLookupError):  # ended since
                is_ours = each.pid not in _running and os.getsid(each.pid) != session
                if is_ours and each.status() != psutil.STATUS_ZOMBIE:
                    orphans.append(each)
    return orphans
