"""One writer at a time: a process that measures into a results file locks out all others."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.model.errors import ShardbenchError
from harness.store.results import cannot_be_written, check_is_file


@contextmanager
def hold(results: Path) -> Iterator[None]:
    """Hold a results file for as long as the block runs.

    The lock is the kernel's, on `FILE.lock` in the same folder, so that it ends with the process,
    however that ends. The file itself is not touched, and need not be there yet. Raises
    ShardbenchError where another process holds it, which is named, or it cannot be written.
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
        with suppress(OSError):  # the disk is full: the lock holds all the same, without a name
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
            # The one that held it may have removed the file just now: then this is no lock.
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
