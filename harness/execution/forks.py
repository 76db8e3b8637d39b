"""Forks of a child process: copies that use its prepared variants, and end with it."""

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
    """A fork of this process that runs `work`, and is ended on leaving, whatever happens.

    `work` is given a function that sends a value to this process. Its stages and notes go through
    the report, if there is one, to the parent; with `is_apart` they come here too, so that
    whatever it sends is known to be its own. `failing` is called before this process fails because
    the fork has.
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
        """Return what can be read when messages have come."""
        return self._pipe

    def read(self) -> list[Message]:
        """Read the messages that have come; waits where there are none.

        Where the fork has ended without a result, this process ends in the same way: its parent
        sees the same as if this process had done the work itself.

        Raises:
            ForkFailedError: the fork reports a failure, or sends no valid message.
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
        """Wait for the result; raises ForkFailedError without one."""
        while True:
            for _, message in listen({"": self}, _LOOK_FOR_END_SECONDS):
                if isinstance(message, Result):
                    return message.value

    def look_for_end(self, seconds: float = 0.0) -> None:
        """End this process as the fork has ended, if it has or does so within some seconds."""
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
    """Return the messages that arrive from some forks within some seconds, by name.

    Errors are those of `Fork.read`.
    """
    with selectors.DefaultSelector() as selector:
        for name, fork in forks.items():
            selector.register(fork, selectors.EVENT_READ, name)
        ready = [str(key.data) for key, _ in selector.select(seconds)]
    if not ready:  # a process that one of them has left may keep its pipe open
        for fork in forks.values():
            fork.look_for_end()
    return [(name, message) for name in ready for message in forks[name].read()]


def _run(work: Callable[[Send], Any], report: Report | None, pipe: int, is_apart: bool) -> None:
    """Run the work, send what comes of it, and end this process."""

    owner = os.getpid()

    def send(message: Message) -> None:
        if os.getpid() != owner:  # a fork of the work's own that went on where it should have ended
            os._exit(1)
        left = memoryview(encode(message))
        while left:
            left = left[os.write(pipe, left) :]

    try:
        if report is not None:
            report.take_over(pipe if is_apart else None)
        end: Message = Result(work(lambda value: send(Note(value))))
    except BaseException as error:  # it may raise anything
        end = failure_of(error)
    with suppress(BaseException):
        sys.stdout.flush()
    with suppress(BaseException):  # the pipe may be closed
        send(end)
    os._exit(0)
