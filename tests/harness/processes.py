"""Finds running child processes."""

import psutil

from harness.execution.server import SERVER


def server_children() -> list[psutil.Process]:
    """Return the running descendants of the server process that forks children.

    The list of processes contains an ended child (a zombie) until the server reaps it.
    """
    assert SERVER.process is not None
    server = psutil.Process(SERVER.process.pid)
    return [child for child in server.children(recursive=True) if is_running(child.pid)]


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
