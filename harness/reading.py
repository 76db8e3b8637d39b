"""Files that a user names, read whole, and only where they are files."""

import os
import stat
from pathlib import Path

from harness.errors import UsageError

MOST_BYTES = 2**30


def read_file(path: str | Path, called: str = "") -> bytes:
    """Return the content of a file; `called` says what errors call it, its path otherwise.

    Raises:
        UsageError: it cannot be read, is a pipe or a device, which may never end, or holds more
            than 1 GiB.
    """
    name = called or str(path)
    try:
        # Without O_NONBLOCK a pipe that nobody writes to would be waited for.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{name} cannot be read: it must be a file, no pipe or device.")
            content = b"" if status.st_size > MOST_BYTES else file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}.") from None
    except ValueError:  # NUL, or what no file system can write
        raise UsageError(f"{name} cannot be read: no file can be called so.") from None
    if max(status.st_size, len(content)) > MOST_BYTES:
        raise UsageError(f"{name} cannot be read: it must hold at most {MOST_BYTES:,} bytes.")
    return content
