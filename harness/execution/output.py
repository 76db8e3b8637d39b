"""The printed output of a child process: print its beginning, store its end for error messages."""

import codecs
import os
import re
import sys
from contextlib import suppress
from multiprocessing.connection import Connection

from harness.model.errors import printable

_PASSED_BYTES = 8 * 1024
_KEPT_LETTERS = 2 * 1024
_CHUNK = 1 << 16
_MOST_CHUNKS = 64  # more than a pipe's buffer: a running process may print without end
# faulthandler lists hundreds of module names in one line after the stack of a crash.
_EXTENSION_MODULES = re.compile(rb"\n+Extension modules: [^\n]*\n?")


class Output:
    """The reading end of a pipe that a child prints into.

    Reading never blocks and never waits for the end of the output, because a process that the child
    started may keep the pipe open. If `passed_on`, the first 8 KiB are printed to standard error.
    """

    def __init__(self, pipe: Connection, passed_on: bool = True) -> None:
        self._pipe = pipe
        os.set_blocking(pipe.fileno(), False)
        self._bytes_left = _PASSED_BYTES if passed_on else 0
        self._left_out = 0
        self._passed_on = passed_on
        self._last = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self.is_open = True

    def fileno(self) -> int:
        """Return the file descriptor to wait on."""
        return self._pipe.fileno()

    def read(self) -> bool:
        """Read a chunk without waiting; return whether there was any output."""
        try:
            chunk = os.read(self.fileno(), _CHUNK)
        except OSError:  # nothing to read at the moment
            return False
        self.is_open = bool(chunk)
        self._last = (self._last + chunk)[-_CHUNK:]
        if begin := chunk[: self._bytes_left]:
            _to_standard_error(self._decoder.decode(begin))
        self._bytes_left -= len(begin)
        self._left_out += len(chunk) - len(begin)
        return bool(chunk)

    def close(self) -> None:
        """Read the rest without waiting, print the number of omitted bytes, and close the pipe."""
        self._read_rest()
        self._pipe.close()
        if self._left_out and self._passed_on:
            _to_standard_error(
                f"\n(It printed {self._left_out:,} more bytes, which are left out.)\n"
            )

    def last(self) -> str:
        """Return the last 2048 characters of the output, cut to whole lines if possible.

        Control characters and bytes that are not UTF-8 are written as escapes.
        """
        self._read_rest()
        text = _EXTENSION_MODULES.sub(b"\n", self._last).decode(errors="backslashreplace")
        lines = "\n".join(
            printable(line.rstrip().replace("\t", "    ")) for line in text.strip().split("\n")
        )
        if len(lines) <= _KEPT_LETTERS:
            return lines
        cut = lines[-_KEPT_LETTERS:]
        return cut.partition("\n")[2] or cut

    def _read_rest(self) -> None:
        for _ in range(_MOST_CHUNKS):
            if not self.is_open or not self.read():
                break


def _to_standard_error(text: str) -> None:
    with suppress(AttributeError, OSError, ValueError):  # it may be closed, or there may be none
        sys.stderr.write(text)
        sys.stderr.flush()
