"""Read and write lines through a pipe between processes."""

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
    """Read the lines that a process sends; while waiting, also read its printed output.

    Args:
        pipe: the reading end of the pipe for lines.
        output: the printed output of the process.
        has_ended: returns whether the process has ended; its forks may keep the pipe open.
    """

    def __init__(self, pipe: Connection, output: Output, has_ended: Callable[[], bool]) -> None:
        self._pipe, self._output, self._has_ended = pipe, output, has_ended
        self._pieces = [b""]

    def next(self, timeout: float = math.inf) -> bytes | None:
        """Return the next line without its newline, or None after `timeout` seconds.

        For a line above 1 GiB, return an empty line.

        Raises:
            EOFError: the process has ended, or closed the pipe, before a whole line arrived.
        """
        until = time.monotonic() + timeout
        while b"\n" not in self._pieces[-1]:
            has_ended = self._has_ended()  # checked before reading, to get its last lines
            left = 0.0 if has_ended else until - time.monotonic()
            sources: list[Any] = [self._pipe, *([self._output] if self._output.is_open else [])]
            ready: list[Any] = wait(sources, max(0.0, min(left, _LOOK_FOR_END_SECONDS)))
            if self._output in ready:
                self._output.read()
            if self._pipe in ready:
                piece = os.read(self._pipe.fileno(), _CHUNK)
                if not piece:
                    raise EOFError
                self._pieces.append(piece)
            elif has_ended:
                raise EOFError
            elif left <= 0:
                return None
            if sum(map(len, self._pieces)) > _LONGEST:
                return b""
        line, _, rest = b"".join(self._pieces).partition(b"\n")
        self._pieces = [rest]
        return line


def write_line(pipe: Connection, line: bytes) -> None:
    """Write all of `line`, which ends in a newline; raise OSError if the other end is closed."""
    left = memoryview(line)
    while left:
        left = left[os.write(pipe.fileno(), left) :]
