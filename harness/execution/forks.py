"""Forks of a child process, which share its prepared variants and end when it ends."""

import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import Pipe
from typing import Any, NoReturn, Self

from harness.execution.worker import (
    Failed,
    ForkFailedError,
    Inbox,
    Message,
    Note,
    Report,
    Result,
)

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
        self._pipe, pipe = Pipe(duplex=False)
        self._inbox = Inbox(self._pipe)
        self.pid = os.fork()
        if not self.pid:
            self._pipe.close()
            own = Report(pipe)
            if report is not None:
                report.take_over(own if is_apart else None)
            own.finish(lambda: work(lambda value: own.send(Note(value))))
            with suppress(BaseException):
                sys.stdout.flush()
            os._exit(0)
        pipe.close()

    def fileno(self) -> int:
        """Return the file descriptor that becomes readable when messages arrive."""
        return self._pipe.fileno()

    def read(self) -> list[Message]:
        """Return the messages that have arrived; wait if there are none.

        If the fork has ended without a result, this process ends with the same exit code or signal,
        as if it had done the work itself.

        Raises:
            ForkFailedError: the fork reports a failure, or sends an invalid message.
        """
        try:
            messages = self._inbox.read()
        except EOFError:
            self.look_for_end(_EXIT_CODE_SECONDS)
            self._fail(Failed("It closed the connection of its child process."))
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
        while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
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
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self._pipe.close()


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
