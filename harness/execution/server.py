"""The fork server: a process with heavy modules imported, from which children are forked."""

import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, get_context, resource_tracker, spawn
from multiprocessing.process import BaseProcess

import psutil

from harness.execution.bootstrap import PRELOAD, restore_variables
from harness.model.errors import ShardbenchError

_START_SECONDS = 600.0  # torch is imported first, and a machine may be busy
_ORPHAN_ROUNDS = 20
_LONGEST_FOLDER = 107 - len("/pymp-abcdefgh/listener-abcdefgh")  # what multiprocessing adds
_SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")

_preloaded: tuple[str, ...] = ()
_imported: frozenset[str] = frozenset()  # the imports of the running server
_running: set[int] = set()
_starting = threading.Lock()


def start_server(preload: tuple[str, ...]) -> None:
    """Start the fork server with these modules imported, so that no child has to import them.

    Hash randomisation is off in the server: torchrec enumerates options in the order of a set of
    strings, so plans with ties would otherwise differ from run to run. A running server without
    these modules is replaced, unless it has children; then new children import them themselves.
    """
    global _preloaded
    with _starting:
        server = _server_pid()
        if server is not None and not _imported.issuperset(preload) and not _running:
            _kill(server)
            with suppress(ChildProcessError):  # multiprocessing may have waited for it already
                os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
        _preloaded = preload
        _ensure_server()


def _ensure_server() -> None:
    """Start the server if it is not running; a child may have killed a previous one."""
    global _imported
    server = _server_pid()
    parent = spawn.get_preparation_data("server")
    # Without these, the server would look for our packages in the working directory first.
    search = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    preload = {
        "modules": _preloaded,
        "main": parent.get("init_main_from_path"),
        "path": parent["sys_path"],
        "variables": {name: os.environ.get(name) for name in search},
    }
    settings = {
        **search,
        "PYTHONHASHSEED": "0",
        # Some packages look for GPUs when they are imported. That would start CUDA, which then
        # fails in every forked child. With this setting torch asks the driver's library instead.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        PRELOAD: json.dumps(preload),
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        get_context("forkserver").set_forkserver_preload(["harness.execution.bootstrap"])
        resource_tracker.ensure_running()  # first, because starting it unblocks interrupts
        # The server inherits the block of interrupts until it ignores them.
        with _folder_for_sockets(), _interrupts_held():
            forkserver.ensure_running()
        if _server_pid() != server:
            _imported = frozenset(_preloaded)
    finally:
        restore_variables(before)


@contextmanager
def _folder_for_sockets() -> Iterator[None]:
    """In the block, let multiprocessing make its socket in a folder with a short path.

    The path of a Unix socket has at most 107 bytes. Raise ShardbenchError without such a folder.
    """
    before = tempfile.tempdir
    if len(os.fsencode(tempfile.gettempdir())) > _LONGEST_FOLDER:
        short = [folder for folder in _SHORT_FOLDERS if os.access(folder, os.W_OK | os.X_OK)]
        if not short:
            raise ShardbenchError(
                f"The temporary folder {tempfile.gettempdir()} has a path too long for a socket, "
                f"and none of {', '.join(_SHORT_FOLDERS)} can be written; set TMPDIR to another."
            )
        tempfile.tempdir = short[0]
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Block interrupts in this thread; a process started in the `with` block inherits that."""
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
    """Start a process by forking the server.

    Raises:
        ShardbenchError: the server fails, or takes over 600 s, e.g. because an import hangs.
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
    """Kill the orphans of a child that has ended, by its pid; the server has adopted them."""
    _running.discard(ended)
    for _ in range(_ORPHAN_ROUNDS):  # killing an orphan turns its own children into orphans
        with _starting:
            orphans = _orphans()
        if not orphans:
            return
        for orphan in orphans:
            with suppress(psutil.Error):
                orphan.kill()
        psutil.wait_procs(orphans, timeout=1.0)


def _orphans() -> list[psutil.Process]:
    """Return the server's running children that descend from an ended child.

    Each child has its own session, and its descendants cannot return to the server's session.
    """
    server = _server_pid()
    orphans: list[psutil.Process] = []
    if server is None:
        return orphans
    with suppress(psutil.Error, ProcessLookupError):  # the server has ended
        session = os.getsid(server)
        for child in psutil.Process(server).children():
            with suppress(psutil.Error, ProcessLookupError):  # the child has ended since
                is_ours = child.pid not in _running and os.getsid(child.pid) != session
                if is_ours and child.status() != psutil.STATUS_ZOMBIE:
                    orphans.append(child)
    return orphans
