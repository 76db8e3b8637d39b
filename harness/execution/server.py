"""The fork server: a process with heavy modules imported, from which jobs are forked."""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing import Pipe, spawn
from multiprocessing.connection import Connection, wait

from harness.execution import worker
from harness.model.errors import ShardbenchError

_START_SECONDS = 600.0  # torch is imported first, and a machine may be busy
_END_SECONDS = 10.0
_LOST = 255  # the exit code of a job whose server has ended


class Server:
    """The fork server of this process, which starts it when a job needs it; it is thread-safe."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.running: set[int] = set()
        self._modules: tuple[str, ...] = ()
        self._imported: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def start(self, modules: tuple[str, ...]) -> None:
        """Start the server with these modules imported, so that no job has to import them.

        A running server without them is replaced, unless it has jobs: then new jobs import them.
        """
        with self._lock:
            if not self.running and not self._imported.issuperset(modules):
                self._end()
            self._modules = modules
            self._ensure()

    def _ensure(self) -> None:
        """Start the server if it is not running; a job may have killed a previous one."""
        if self.process is not None and self.process.poll() is None:
            return
        self._end()
        self._imported = frozenset(self._modules)
        parent = spawn.get_preparation_data("server")
        settings = {
            "modules": self._modules,
            "path": parent["sys_path"],
            "main": parent.get("init_main_from_path"),
        }
        # Hash randomisation is off: torchrec enumerates options in the order of a set of strings,
        # so plans with ties would differ from run to run.
        # Some packages look for GPUs when they are imported. That would start CUDA, which then
        # fails in every fork. With this setting torch asks the driver's library instead.
        variables = {"PYTHONHASHSEED": "0", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        self._control, control = socket.socketpair()
        with control:
            command = [sys.executable, "-P", worker.__file__, "serve", f"{control.fileno()}"]
            self.process = subprocess.Popen(
                [*command, json.dumps(settings)],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **variables},
                pass_fds=(control.fileno(),),
                start_new_session=True,  # the parent handles interrupts
            )

    def _end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._control.close()
            self.process = None

    def fork(self, *pipes: int) -> "Forked":
        """Fork a process for a job with these pipes, for requests, messages and printed output.

        Raises:
            ShardbenchError: the server fails, or takes over 600 s, e.g. because an import hangs.
        """
        if worker.in_server:
            raise RuntimeError("A module that child processes import must not start another.")
        with self._lock:
            self._ensure()
            status, sent = Pipe(duplex=False)
            with sent, suppress(OSError):
                socket.send_fds(self._control, [b"j"], [*pipes, sent.fileno()])
            is_late = not wait([status], _START_SECONDS)
            pid = b"" if is_late else os.read(status.fileno(), worker.STATUS.size)
            if not pid:
                self._end()
                why = f"took longer than {_START_SECONDS:g} s" if is_late else "failed"
                raise ShardbenchError(
                    f"Starting a child process {why}; what is imported first is: "
                    f"{' '.join(self._modules) or 'nothing'}."
                )
            forked = Forked(worker.STATUS.unpack(pid)[0], status, self)
            self.running.add(forked.pid)
            return forked


class Forked:
    """A process that the server has forked, which leads a process group."""

    def __init__(self, pid: int, status: Connection, server: Server) -> None:
        self.pid, self._status, self._server = pid, status, server
        self._code: int | None = None
        self._is_lost = False  # whether the server has ended before the process

    def wait(self, seconds: float = 0.0) -> int | None:
        """Wait up to `seconds` for the process to end; return its exit code, None if it runs.

        Its descendants have ended then, too.
        """
        if self._code is None and wait([self._status], seconds):
            code = os.read(self._status.fileno(), worker.STATUS.size)
            self._is_lost = not code
            self._code = worker.STATUS.unpack(code)[0] if code else _LOST
            self._status.close()
            self._server.running.discard(self.pid)
        return self._code

    def kill(self) -> None:
        """Kill the process and its descendants, and wait until they have ended."""
        if self.wait() is None or self._is_lost:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:  # it has not made its group yet, or all have ended
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
            self.wait(_END_SECONDS)


SERVER = Server()
start_server = SERVER.start


@atexit.register
def _end_server(owner: int = os.getpid()) -> None:
    if os.getpid() == owner:  # a fork of this process must not end it
        SERVER._end()
