"""Forks of a child process, which share its prepared variants and end when it ends."""

import math
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import psutil

from harness.execution.child import Child, OwnProcess
from harness.execution.worker import Failed, ForkFailedError, Message, Note, Report, Result

Send = Callable[[Any], None]


class Fork(Child):
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
        def start(_: int, messages: int, __: int) -> OwnProcess:
            pid = os.fork()
            if pid:
                return OwnProcess(psutil.Process(pid))
            own = Report(Connection(messages, readable=False))
            if report is not None:
                report.take_over(own if is_apart else None)
            own.finish(lambda: work(lambda value: own.send(Note(value))))
            with suppress(BaseException):
                sys.stdout.flush()
            os._exit(0)

        self._failing, self._has_result = failing, False
        super().__init__(start, passed_on=False)

    def receive(self, timeout: float = math.inf) -> Message | None:
        """Return the next message, None after `timeout` seconds or after the result.

        Raise ForkFailedError if the fork has failed, or ended without a result.
        """
        message = None if self._has_result else super().receive(timeout)
        if isinstance(message, Failed):
            self._failing()
            raise ForkFailedError(message)
        self._has_result = self._has_result or isinstance(message, Result)
        return message

    def result(self) -> Any:
        """Wait for the work's result and return it; raise ForkFailedError if the fork fails."""
        while not isinstance(message := self.receive(), Result):
            pass
        return message.value


def listen(forks: Mapping[str, Fork], seconds: float) -> list[tuple[str, Message]]:
    """Wait up to `seconds` for messages, and return them, each with the name of its fork.

    Raises ForkFailedError if a fork has failed, or ended without a result.
    """
    wait([fork.fileno() for fork in forks.values()], seconds)
    heard = []
    for name, fork in forks.items():
        while message := fork.receive(0.0):
            heard.append((name, message))
    return heard
