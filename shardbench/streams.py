"""Standard output and standard error, which may be closed, full, or unable to show a letter."""

import errno
import os
import sys
from contextlib import suppress

from harness.model.errors import ShardbenchError

_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def prepare_streams() -> None:
    """Make the streams safe to write to.

    A closed descriptor is opened on the null device, because the next file that is opened would
    get its number. Letters that a stream's encoding lacks become question marks.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            os.set_inheritable(descriptor, True)  # for child processes, as a standard stream
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # None, or a stream of another kind
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def write_out(text: str) -> None:
    """Write to standard output now; a reader that has closed it is no error.

    Raise ShardbenchError if it cannot be written, e.g. because the disk is full.
    """
    if sys.stdout is None:  # it was closed before this program started
        return
    try:
        if text:  # writing nothing fails on a full disk, too
            sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        _discard(1)
        if error.errno != errno.EPIPE:
            raise not_written(error) from None


def flush_streams() -> None:
    """Flush both streams now, because a failed flush at interpreter exit would exit with 120."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except (OSError, ValueError):  # there is nowhere left to report it
        _discard(2)
    write_out("")


def _discard(descriptor: int) -> None:
    """Redirect a file descriptor to the null device, which discards buffered output."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def not_written(error: OSError) -> ShardbenchError:
    """Return the error for output that could not be written; raise any other error again."""
    if error.errno not in _NOT_WRITTEN:
        raise error
    return ShardbenchError(f"The output cannot be written: {error.strerror}.")
