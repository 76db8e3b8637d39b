"""Run a callable in a child process under limits, then kill the child and its descendants."""

import math
import os
import pickle
import re
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe, spawn
from multiprocessing.connection import wait
from typing import Any, Self, get_args

import psutil

from harness.execution.server import SERVER, Forked
from harness.execution.usage import has_more_than
from harness.execution.worker import (
    Failed,
    Message,
    Note,
    Result,
    Stage,
    mentions_memory_error,
)
from harness.model.errors import printable
from harness.model.machine import GIB, default_memory_gib

_POLL_SECONDS = 0.1
_EXIT_CODE_SECONDS = 1.0
_LOOK_FOR_END_SECONDS = 0.5
_LOOK_AT_MEMORY_SECONDS = 0.25
_END_SECONDS = 10.0
_CLOSING_SECONDS = 30.0  # the result is known by then
_PASSED_BYTES = 8 * 1024
_LEFT_OUT = "\n(It printed more, which is left out.)\n"
_KEPT_BYTES, _KEPT_LETTERS = 1 << 16, 2 * 1024
_CHUNK = 1 << 20
_HEADER = struct.Struct("!i")  # the size before each message of a Connection
_LONGEST_MESSAGE = 1 << 30
_MOST_CHUNKS = 64  # more than a pipe's buffer: a running process may print without end
# faulthandler lists hundreds of module names in one line after the stack of a crash.
_EXTENSION_MODULES = re.compile(rb"\n+Extension modules: [^\n]*\n?")


def run(
    work: Callable[..., Any],
    *arguments: Any,
    first: Stage,
    listen: Callable[[Any], None] = lambda message: None,
    memory_gib: float | None = None,
) -> Any | Failed:
    """Call `work` in a child process; return its result, or a `Failed` with the reason.

    The child is killed if a stage takes too long, if the child and its children use too much
    memory, or if `listen` raises.

    Args:
        work: the function to run; it is called with the arguments and a `Report`.
        arguments: the arguments of `work`, which must be picklable.
        first: the stage that the work begins with; the work reports later stages itself.
        listen: called with each `Stage` that begins, and with the content of each `Note`.
        memory_gib: the memory limit in GiB; None means 90 % of the machine's memory.

    Raises:
        ShardbenchError: no process can be started.
    """
    gib = default_memory_gib() if memory_gib is None else memory_gib
    over_memory = Failed(f"passed its memory limit of {gib:g} GiB", "memory")
    failed: Failed | None = None
    with start_job(work, *arguments, memory_gib=gib) as child:
        looked_at_memory = began = time.monotonic()
        stage = first
        while failed is None:
            message = child.receive(_POLL_SECONDS)
            now = time.monotonic()
            elapsed = now - began
            match message:
                case Result(value):
                    _wait_until_closed(child)
                    return value
                case Failed():
                    # A native library may print that it got no memory, and abort.
                    was_killed = "was killed by signal" in message.reason
                    was_refused = was_killed and mentions_memory_error(child.last_output())
                    is_memory = message.cause == "memory" or was_refused
                    failed = over_memory if is_memory else message
                    _wait_until_closed(child)
                case Stage():
                    stage, began = message, now
                    listen(message)
                case Note(content):
                    listen(content)
                case None if elapsed > stage.seconds:  # no message that the stage is over waits
                    failed = Failed(f"{stage.what} was stopped after {elapsed:.0f} s", "time")
            if now - looked_at_memory > _LOOK_AT_MEMORY_SECONDS and failed is None:
                looked_at_memory = now
                if has_more_than(child.process.pid, gib * GIB):
                    failed = over_memory
        return replace(failed, stage=stage, elapsed_s=elapsed, output=child.last_output())


def _wait_until_closed(child: "Child") -> None:
    """Wait until the process has cleaned up and ended, however it ends, or for 30 s."""
    until = time.monotonic() + _CLOSING_SECONDS
    while time.monotonic() < until:
        if isinstance(child.receive(_POLL_SECONDS), Failed):
            return


class OwnProcess:
    """A fork of this process, or a program that it has started."""

    def __init__(self, process: psutil.Process) -> None:
        self.pid, self._process = process.pid, process

    def wait(self, seconds: float = 0.0) -> int | None:
        """Wait up to `seconds` for the end; return the exit code, None if the process runs."""
        with suppress(psutil.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def kill(self) -> None:
        """Kill the process, and wait until it has ended."""
        with suppress(psutil.NoSuchProcess):
            self._process.kill()
        self.wait(_END_SECONDS)


class Child:
    """A process, with pipes for requests to it, its messages and the output that it prints.

    Leaving the `with` block kills it. Its output is read whenever messages are: reading never
    blocks and never waits for the end, because a process that it started may keep the pipe open.

    Args:
        start: starts the process with the file descriptors of its ends of the three pipes.
        passed_on: whether the first 8 KiB of its output are printed to standard error.
    """

    def __init__(
        self, start: Callable[[int, int, int], OwnProcess | Forked], passed_on: bool = True
    ) -> None:
        requests, self._requests = Pipe(duplex=False)
        self._messages, messages = Pipe(duplex=False)
        self._output, output = Pipe(duplex=False)
        os.set_blocking(self._output.fileno(), False)
        self._has_output, self._printed = True, b""
        self._bytes_to_pass = _PASSED_BYTES if passed_on else 0
        self._bytes, self._arrived = bytearray(), list[Message]()
        self._end: Failed | None = None
        with requests, messages, output:
            try:
                self.process = start(requests.fileno(), messages.fileno(), output.fileno())
            except BaseException:
                self._close_pipes()
                raise

    @property
    def has_failed(self) -> bool:
        """Whether the process has ended, closed the pipe, or sent something that is no message."""
        return self._end is not None

    def fileno(self) -> int:
        """Return the file descriptor that becomes readable when messages arrive."""
        return self._messages.fileno()

    def send(self, pickled: bytes) -> None:
        """Send a request; if the process has ended, `receive` says how."""
        with suppress(OSError):
            self._requests.send_bytes(pickled)

    def receive(self, timeout: float = math.inf) -> Message | None:
        """Return the next message, None after `timeout` seconds; meanwhile read the output.

        After the last message of a process that has ended, or closed the pipe, always return a
        `Failed` that says so.
        """
        until = time.monotonic() + timeout
        while not self._arrived and self._end is None:
            # Before reading, to get its last messages; its forks may keep the pipe open.
            has_ended = self.process.wait() is not None
            left = 0.0 if has_ended else until - time.monotonic()
            sources = [self._messages, *([self._output] if self._has_output else [])]
            ready = wait(sources, max(0.0, min(left, _LOOK_FOR_END_SECONDS)))
            if self._output in ready:
                self._read_output()
            piece = os.read(self.fileno(), _CHUNK) if self._messages in ready else b""
            if piece:
                self._take(piece)
            elif has_ended or self._messages in ready:
                code = self.process.wait(_EXIT_CODE_SECONDS)
                self._end = Failed(
                    "It closed the connection of its child process."
                    if code is None
                    else f"The child process {how_it_ended(code)} without a result."
                )
            elif left <= 0:
                return None
        return self._arrived.pop(0) if self._arrived else self._end

    def _take(self, piece: bytes) -> None:
        """Add the messages that are complete with a piece of the pipe's content."""
        self._bytes += piece
        while len(self._bytes) >= _HEADER.size and self._end is None:
            (size,) = _HEADER.unpack_from(self._bytes)
            end = _HEADER.size + size
            if 0 <= size <= _LONGEST_MESSAGE and len(self._bytes) < end:
                return
            message: Any = None
            with suppress(Exception):  # the work may have written anything into the pipe
                message = pickle.loads(self._bytes[_HEADER.size : end])
            if isinstance(message, get_args(Message)):
                self._arrived.append(message)
                del self._bytes[:end]
            else:
                self._end = Failed("The child process sent something that is no message.")

    def last_output(self) -> str:
        """Return the last 2048 characters of the output, cut to whole lines if possible.

        Control characters and bytes that are not UTF-8 are written as escapes.
        """
        for _ in range(_MOST_CHUNKS):
            if not self._read_output():
                break
        text = _EXTENSION_MODULES.sub(b"\n", self._printed).decode(errors="backslashreplace")
        lines = "\n".join(
            printable(line.rstrip().replace("\t", "    ")) for line in text.strip().split("\n")
        )
        if len(lines) <= _KEPT_LETTERS:
            return lines
        cut = lines[-_KEPT_LETTERS:]
        return cut.partition("\n")[2] or cut

    def _read_output(self) -> bool:
        """Read a chunk of the output without waiting; return whether there was any."""
        try:
            chunk = os.read(self._output.fileno(), _CHUNK)
        except OSError:  # nothing to read at the moment
            return False
        self._has_output = bool(chunk)
        self._printed = (self._printed + chunk)[-_KEPT_BYTES:]
        if chunk and self._bytes_to_pass > 0:
            begin = chunk[: self._bytes_to_pass]
            self._bytes_to_pass -= len(chunk)
            text = begin.decode(errors="backslashreplace")
            with suppress(AttributeError, OSError, ValueError):  # it may be closed, or missing
                sys.stderr.write(text if self._bytes_to_pass >= 0 else text + _LEFT_OUT)
                sys.stderr.flush()
        return bool(chunk)

    def close(self) -> None:
        """Kill the process, and pass its last output on."""
        self.process.kill()
        self.last_output()
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._requests, self._messages, self._output):
            pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_job(work: Callable[..., Any], *arguments: Any, memory_gib: float) -> Child:
    """Start a child process that calls `work`; closing it kills all its descendants.

    Raises ShardbenchError if no process can be started.
    """
    prepared = spawn.get_preparation_data("shardbench")
    for name in ("authkey", "start_method"):
        del prepared[name]
    request = pickle.dumps((prepared, pickle.dumps((work, arguments, memory_gib))))
    child = Child(SERVER.fork)
    child.send(request)
    return child


def how_it_ended(code: int) -> str:
    """Describe an exit code in words; a negative code is minus the signal that killed a process."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:  # a real-time signal has no name
        return f"was killed by signal {-code}"
