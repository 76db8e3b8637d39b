"""Lines that arrive from another process through a pipe."""

import math
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from harness.execution.output import Output

_CHUNK = 1 << 20
_LONGEST = 1 << 30
_LOOK_FOR_END_SECONDS = 0.5


class Lines:
    """The lines that a process sends; its output is read as well while waiting for one.

    Args:
        pipe: the end that the lines arrive at.
        output: the output of the process.
        has_ended: whether the process has ended; its forks may keep the pipe open.
    """

    def __init__(self, pipe: Connection, output: Output, has_ended: Callable[[], bool]) -> None:
        self._pipe, self._output, self._has_ended = pipe, output, has_ended
        self._pieces = [b""]

    def next(self, timeout: float = math.inf) -> bytes | None:
        """Return the next line without its end, or None after `timeout` seconds.

        A line that is too long is returned as an empty one.

        Raises:
            EOFError: no whole line can come any more.
        """
        until = time.monotonic() + timeout
        while b"\n" not in self._pieces[-1]:
            has_ended = self._has_ended()  # asked first: its last lines are still read
            left = 0.0 if has_ended else until - time.monotonic()
            sources: list[Any] = [self._pipe, *([self._output] if self._output.is_open else [])]
            ready: list[Any] = wait(sources, max(0.0, min(left, _LOOK_FOR_END_SECONDS)))
            if self._output in ready:
                self._output.read()
            if self._pipe in ready:
                self._read()
            elif has_ended:
                raise EOFError
            elif left <= 0:
                return None
            if sum(map(len, self._pieces)) > _LONGEST:
                return b""
        line, _, rest = b"".join(self._pieces).partition(b"\n")
        self._pieces = [rest]
        return line

    def _read(self) -> None:
        piece = os.read(self._pipe.fileno(), _CHUNK)
        if not piece:
            raise EOFError
        self._pieces.append(piece)


def write_line(pipe: Connection, line: bytes) -> None:
    """Write a whole line, with its end; raises OSError where nobody reads it."""
    left = memoryview(line)
    while left:
        left = left[os.write(pipe.fileno(), left) :]
