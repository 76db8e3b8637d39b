"""A lock on a results file, so that only one process at a time measures into it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.model.errors import ShardbenchError
from harness.store.results import cannot_be_written, check_is_file


@contextmanager
def hold(results: Path) -> Iterator[None]:
    """Lock a results file while the block runs.

    The kernel's lock (`flock`) is on `FILE.lock` in the same folder and ends with the process, even
    if it is killed. The results file need not exist and is not changed. Raise ShardbenchError if
    another process holds the lock (with its id) or if the lock file cannot be written.
    """
    check_is_file(results)
    results = results.resolve()
    lock = results.with_name(f"{results.name}.lock")
    try:
        results.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _acquired(lock, results)
    except OSError as error:
        raise cannot_be_written(results, error) from None
    try:
        with suppress(OSError):  # on a full disk, the lock works without the process id
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        with suppress(OSError):
            lock.unlink()
        os.close(descriptor)


def _acquired(lock: Path, results: Path) -> int:
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The previous holder may have just removed the file; a lock on that file is void.
            if os.path.samestat(os.fstat(descriptor), lock.stat()):
                return descriptor
        except BlockingIOError:
            who = os.pread(descriptor, 20, 0).decode("ascii", errors="replace").strip()
            os.close(descriptor)
            raise ShardbenchError(
                f"{f'Process {who}' if who else 'Another process'} is measuring into {results}; "
                "wait for it to end, or name another file."
            ) from None
        except FileNotFoundError:
            pass
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
