"""Forks of a child process, which share its prepared variants and end when it ends."""

import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn, Self

from harness.execution.bootstrap import Report, failure_of
from harness.execution.messages import (
    Failed,
    ForkFailedError,
    Message,
    Note,
    Result,
    decode,
    encode,
)

_CHUNK = 1 << 16
_LOOK_FOR_END_SECONDS = 0.5
_EXIT_CODE_SECONDS = 1.0

Send = Callable[[Any], None]


class Fork:
    """A fork of this process that runs `work`; leaving the `with` block kills the fork.

    `work` is called with a function that sends a value to this process. If the work also uses
    `report`, its messages go to this process's parent, or to this process if `is_apart`, which then
    knows the fork that sent them. `failing` is called just before the failure of the fork makes
    this process fail.
    """

    def __init__(
        self,
        work: Callable[[Send], Any],
        report: Report | None = None,
        is_apart: bool = False,
        failing: Callable[[], None] = lambda: None,
    ) -> None:
        self._failing = failing
        self._pipe, pipe = os.pipe()
        self._rest = b""
        self._pid = os.fork()
        if not self._pid:
            os.close(self._pipe)
            _run(work, report, pipe, is_apart)
        os.close(pipe)

    def fileno(self) -> int:
        """Return the file descriptor that becomes readable when messages arrive."""
        return self._pipe

    def read(self) -> list[Message]:
        """Return the messages that have arrived; wait if there are none.

        If the fork has ended without a result, this process ends with the same exit code or signal,
        as if it had done the work itself.

        Raises:
            ForkFailedError: the fork reports a failure, or sends an invalid message.
        """
        piece = os.read(self._pipe, _CHUNK)
        if not piece:
            self.look_for_end(_EXIT_CODE_SECONDS)
            self._fail(Failed("It closed the connection of its child process."))
        *lines, self._rest = (self._rest + piece).split(b"\n")
        messages = [decode(line) for line in lines]
        for message in messages:
            if isinstance(message, Failed):
                self._fail(message)
        return messages

    def _fail(self, failed: Failed) -> NoReturn:
        self._failing()
        raise ForkFailedError(failed)

    def result(self) -> Any:
        """Wait for the work's result and return it; raise ForkFailedError if the fork fails."""
        while True:
            for _, message in listen({"": self}, _LOOK_FOR_END_SECONDS):
                if isinstance(message, Result):
                    return message.value

    def look_for_end(self, seconds: float = 0.0) -> None:
        """Wait `seconds` for the fork to end; if it does, end this process in the same way."""
        until = time.monotonic() + seconds
        while not (ended := os.waitpid(self._pid, os.WNOHANG))[0]:
            if time.monotonic() >= until:
                return
            time.sleep(0.01)
        self._failing()
        code = os.waitstatus_to_exitcode(ended[1])
        if code >= 0:
            os._exit(code)
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pipe)
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def listen(forks: Mapping[str, Fork], seconds: float) -> list[tuple[str, Message]]:
    """Wait up to `seconds` for messages, and return them, each with the name of its fork.

    It raises the errors of `Fork.read`.
    """
    with selectors.DefaultSelector() as selector:
        for name, fork in forks.items():
            selector.register(fork, selectors.EVENT_READ, name)
        ready = [str(key.data) for key, _ in selector.select(seconds)]
    if not ready:  # a fork may have ended while a process that it started keeps its pipe open
        for fork in forks.values():
            fork.look_for_end()
    return [(name, message) for name in ready for message in forks[name].read()]


def _run(work: Callable[[Send], Any], report: Report | None, pipe: int, is_apart: bool) -> None:
    """Run the work, send its result or failure, and end this process."""

    owner = os.getpid()

    def send(message: Message) -> None:
        if os.getpid() != owner:  # a fork that the work made, which should have exited
            os._exit(1)
        left = memoryview(encode(message))
        while left:
            left = left[os.write(pipe, left) :]

    try:
        if report is not None:
            report.take_over(pipe if is_apart else None)
        end: Message = Result(work(lambda value: send(Note(value))))
    except BaseException as error:  # the work may raise anything
        end = failure_of(error)
    with suppress(BaseException):
        sys.stdout.flush()
    with suppress(BaseException):  # the pipe may be closed
        send(end)
    os._exit(0)
