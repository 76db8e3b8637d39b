"""Finds running child processes."""

from multiprocessing import forkserver

import psutil


def server_children() -> list[psutil.Process]:
    """Return the running descendants of the server process that forks children.

    The list of processes contains an ended child (a zombie) until the server reaps it.
    """
    server = psutil.Process(forkserver._forkserver._forkserver_pid)
    return [child for child in server.children(recursive=True) if is_running(child.pid)]


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
