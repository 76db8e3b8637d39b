"""Child processes that are there, or have ended."""

from multiprocessing import forkserver

import psutil


def server_children() -> list[psutil.Process]:
    """Return what the server that children are forked from has running."""
    return psutil.Process(forkserver._forkserver._forkserver_pid).children(recursive=True)
