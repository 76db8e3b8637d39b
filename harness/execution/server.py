"""The server that children are forked from, with heavy modules imported once."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, get_context, resource_tracker, spawn
from multiprocessing.process import BaseProcess

import psutil

from harness.execution.bootstrap import PRELOAD
from harness.model.errors import ShardbenchError

_START_SECONDS = 600.0  # torch is imported first, and a machine may be busy
_ORPHAN_ROUNDS = 20

_preloaded: tuple[str, ...] = ()
_imported: frozenset[str] = frozenset()  # the imports of the running server
_running: set[int] = set()
_starting = threading.Lock()


def start_server(preload: tuple[str, ...]) -> None:
    """Start the server with these modules, so that no child has to import them.

    Hash randomisation is off in it: torchrec enumerates options in the order of a set of strings,
    so plans with ties would otherwise differ from run to run. A server that has not imported these
    modules is ended first, unless it has children: each would import them for itself.
    """
    global _preloaded
    with _starting:
        server = _server_pid()
        if server is not None and not _imported.issuperset(preload) and not _running:
            _kill(server)
            with suppress(ChildProcessError):  # multiprocessing asks for it too
                os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
        _preloaded = preload
        _ensure_server()


def _ensure_server() -> None:
    """Start it with its settings where it does not run, or does no more: a child may end it."""
    global _imported
    server = _server_pid()
    parent = spawn.get_preparation_data("server")
    preload = {
        "modules": _preloaded,
        "main": parent.get("init_main_from_path"),
        "path": parent["sys_path"],
    }
    settings = {"PYTHONHASHSEED": "0", PRELOAD: json.dumps(preload)}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        get_context("forkserver").set_forkserver_preload(["harness.execution.bootstrap"])
        resource_tracker.ensure_running()  # it lets interrupts through where it starts
        with _interrupts_held():  # the server takes them from its first line on, then ignores them
            forkserver.ensure_running()
        if _server_pid() != server:
            _imported = frozenset(_preloaded)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold interrupts back, also from a process that is started, which inherits that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _server_pid() -> int | None:
    pid: int | None = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    return pid


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def start_process(process: BaseProcess) -> None:
    """Start a process of the server's.

    Raises:
        ShardbenchError: the server does not answer: an import may never end.
    """
    with _starting:
        _ensure_server()
        server = _server_pid()
        is_late = threading.Event()

        def end_server() -> None:
            is_late.set()
            if server is not None:
                _kill(server)

        watch = threading.Timer(_START_SECONDS, end_server)
        watch.daemon = True
        watch.start()
        try:
            process.start()
        except (EOFError, OSError) as error:
            why = f"took longer than {_START_SECONDS:g} s" if is_late.is_set() else "failed"
            raise ShardbenchError(
                f"Starting a child process {why}; what is imported first is: "
                f"{' '.join(_preloaded) or 'nothing'}."
            ) from error
        finally:
            watch.cancel()
        assert process.pid is not None
        _running.add(process.pid)


def end_orphans(ended: int) -> None:
    """End the processes that left the group of an ended child: the server has adopted them."""
    _running.discard(ended)
    for _ in range(_ORPHAN_ROUNDS):  # one that is ended leaves its own children behind
        with _starting:
            orphans = _orphans()
        if not orphans:
            return
        for orphan in orphans:
            with suppress(psutil.Error):
                orphan.kill()
        psutil.wait_procs(orphans, timeout=1.0)


def _orphans() -> list[psutil.Process]:
    """Return the server's living children that descend from an ended child.

    A child has a session of its own, and what descends from it can not come back to the server's.
    """
    server = _server_pid()
    orphans: list[psutil.Process] = []
    if server is None:
        return orphans
    with suppress(psutil.Error, ProcessLookupError):  # the server is gone
        session = os.getsid(server)
        for child in psutil.Process(server).children():
            with suppress(psutil.Error, ProcessLookupError):  # ended since
                is_ours = child.pid not in _running and os.getsid(child.pid) != session
                if is_ours and child.status() != psutil.STATUS_ZOMBIE:
                    orphans.append(child)
    return orphans
