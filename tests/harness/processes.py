"""Child processes that are there, or have ended."""

from multiprocessing import forkserver

import psutil


def server_children() -> list[psutil.Process]:
    """Return the running processes below the server that children are forked from.

    A child that has ended stays in the list of processes until the server looks for it.
    """
    server = psutil.Process(forkserver._forkserver._forkserver_pid)
    return [child for child in server.children(recursive=True) if is_running(child.pid)]


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
