"""The process that a child's work runs in, from inside: what it prints into, how it ends."""

import ctypes
import faulthandler
import multiprocessing
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from harness.execution.memory import refuse_beyond

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


def enclosed(
    work: Callable[..., None],
    arguments: tuple[Any, ...],
    connection: Connection,
    output: Connection,
    memory_gib: float,
) -> None:
    """Child process: call `work` with its arguments and the connection to the parent."""
    os.setsid()  # so that the parent can stop this process together with its own children
    adopt_orphans()
    _print_into(output)
    faulthandler.enable(file=2, all_threads=False)
    with suppress(OSError, ValueError):  # gigabytes on the disk for every crash
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    refuse_beyond(memory_gib)
    work(*arguments, connection)


def _print_into(output: Connection) -> None:
    for standard in (1, 2):
        os.dup2(output.fileno(), standard)
    output.close()
    # By lines, so that what is printed is not lost when this is stopped.
    sys.stdout, sys.stderr = (
        open(standard, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115 - for the process's life
        for standard in (1, 2)
    )


def adopt_orphans() -> None:
    """Become the parent of what a descendant leaves behind, so that it can be found and stopped."""
    with suppress(OSError, AttributeError):  # a system without it
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_with_parent() -> None:
    """End this process and what it started as soon as the parent is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)
