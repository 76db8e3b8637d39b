"""The toy family with variants that do harm, at once or only from their third call on.

Child processes import this module by name. Each harm has two variants: the variant of its name does
the harm in the checked call, and the variant `NAME-later` from the third call on. The ids of
processes that must not survive are written to the problem's folder.
"""

import ctypes
import gc
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from toy import TOY, Decision, ToyProblem, build, reference, round_robin, same, with_work

from harness.contract import Prepared, Topology, WorkloadSpec
from harness.contract.registry import Registry

HOSTILE = replace(TOY, name="hostile", variants={}, studies=())
HOSTILE.decider("reference", reference=True)(reference)
HOSTILE.decider("same", same_as="reference")(same)

Harm = Callable[[ToyProblem], object]
HARMS: dict[str, str] = {}
"""The beginning of the reason of a failed cell, by the name of the harm."""

MIB = 2**20
_MAP_NORESERVE = 0x4000  # mmap(2) on Linux; the module has no name for it


def hostile_registry() -> Registry:
    return Registry([HOSTILE])


def harm(reason: str) -> Callable[[Harm], Harm]:
    """Register two variants that do a harm, and otherwise decide as the reference does."""

    def register(function: Harm) -> Harm:
        name = function.__name__.replace("_", "-")
        HARMS[name] = reason

        def at_once(problem: ToyProblem) -> Decision:
            function(problem)
            return round_robin(problem)

        def later(problem: ToyProblem) -> Prepared[Decision]:
            calls = 0

            def run() -> Decision:
                nonlocal calls
                calls += 1
                if calls > 2:
                    function(problem)
                return round_robin(problem)

            return Prepared(run)

        HOSTILE.decider(name, same_as="reference")(at_once)
        HOSTILE.variant(f"{name}-later", same_as="reference")(later)
        return function

    return register


@harm("The child process was killed by signal 11 (SIGSEGV) without a result.")
def segfaults(_: ToyProblem) -> None:
    ctypes.string_at(0)


@harm("The child process ended with exit code 0 without a result.")
def leaves(_: ToyProblem) -> None:
    os._exit(0)


@harm("SystemExit: enough")
def exits(_: ToyProblem) -> None:
    sys.exit("enough")


@harm("KeyboardInterrupt")
def interrupts(_: ToyProblem) -> None:
    raise KeyboardInterrupt


@harm("RecursionError: maximum recursion depth exceeded")
def recurses(problem: ToyProblem) -> None:
    recurses(problem)


class Unspeakable(Exception):
    """An error that can be neither pickled nor printed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __str__(self) -> str:
        raise RuntimeError("not even that")


@harm("Unspeakable")
def raises_unspeakable(_: ToyProblem) -> None:
    raise Unspeakable


@harm("It closed the connection of its child process.")
def writes_elsewhere(problem: ToyProblem) -> None:
    """Close all file descriptors, and open files under the same numbers."""
    os.closerange(3, 1000)
    assert problem.folder is not None
    for number in range(100):
        os.open(problem.folder / f"file-{number}", os.O_CREAT | os.O_RDWR)


def open_connections() -> list[Connection]:
    gc.unfreeze()  # what is frozen is not listed
    connections = [each for each in gc.get_objects() if isinstance(each, Connection)]
    return [each for each in connections if each.writable and not each.closed]


@harm("The child process sent something that is no message.")
def sends_garbage(_: ToyProblem) -> None:
    for connection in open_connections():
        os.write(connection.fileno(), b"no message at all")


@harm("passed its memory limit of 8 GiB")
def asks_for_too_much(_: ToyProblem) -> None:
    # More than any limit here, and nothing but the limit refuses it.
    mmap.mmap(-1, 2**40, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)


@harm("ValueError: after printing")
def prints_then_fails(_: ToyProblem) -> None:
    print("\x1b[31mthe last words\x00 of <it> [bold]é")
    raise ValueError("after printing")


@harm("ValueError: after the flood")
def floods_then_fails(_: ToyProblem) -> None:
    for _ in range(200):
        os.write(1, b"flood\n" * 2000)
    raise ValueError("after the flood")


@harm("The child process ended with exit code 255 without a result.")
def ends_the_server(_: ToyProblem) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


# What follows does harm beside its own call, and is not to be blamed for.


_only = partial(HOSTILE.variant, same_as="reference")
_call = partial(HOSTILE.decider, same_as="reference")


def never_ends(*_: Any) -> Any:
    time.sleep(600)
    raise AssertionError("never stopped")


@_call("escapes")
def escapes(problem: ToyProblem) -> Decision:
    """Leave an orphaned process behind, in a session of its own."""
    if not os.fork():
        os.setsid()
        if forked := os.fork():
            problem.leave("grandchild", str(forked))
        else:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        os._exit(0)
    os.wait()
    return round_robin(problem)


@_call("forks-and-goes-on")
def forks_and_goes_on(problem: ToyProblem) -> Decision:
    """Return from a call in two processes, since the call forks."""
    time.sleep(0.03)  # one call makes a turn: each more would double the processes
    os.fork()
    return round_robin(problem)


@_only("never-ending-thread")
def never_ending_thread(problem: ToyProblem) -> Prepared[Decision]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def run() -> Decision:
        if threading.active_count() < 10:
            threading.Thread(target=time.sleep, args=(600,), daemon=False).start()
        return round_robin(problem)

    return Prepared(run)


@_call("changes-folder")
def changes_folder(problem: ToyProblem) -> Decision:
    os.chdir("/")
    return round_robin(problem)


@_only("stays")
def stays(problem: ToyProblem) -> Prepared[Decision]:
    """Fail if another variant has changed the working directory."""
    before = os.getcwd()  # noqa: PTH109 - what variants do

    def run() -> Decision:
        assert os.getcwd() == before  # noqa: PTH109 - what variants do
        return round_robin(problem)

    return Prepared(run)


def _closes_with(name: str, end: Callable[[], object]) -> None:
    """Register a variant that passes the check, and calls `end` in `close` after timed calls."""

    def prepare(problem: ToyProblem) -> Prepared[Decision]:
        calls = 0

        def run() -> Decision:
            nonlocal calls
            calls += 1
            return round_robin(problem)

        def close() -> None:
            if calls > 1:
                problem.leave(f"{name}-closed")
                end()

        return Prepared(run, close=close)

    _only(name)(prepare)


_closes_with("closes-badly", lambda: sys.exit("while closing"))
_closes_with("closes-and-crashes", os.abort)


# What follows is to be blamed, but for something else than a call.


@_only("fails-on-leaving")
def fails_on_leaving(problem: ToyProblem) -> Prepared[Decision]:
    turns = 0

    @contextmanager
    def installed() -> Iterator[None]:
        nonlocal turns
        yield
        turns += 1
        if turns > 2:
            raise OSError("cannot be left")

    return Prepared(lambda: round_robin(problem), installed=installed)


_only("endless-set-up")(never_ends)


@_only("endless-close")
def endless_close(problem: ToyProblem) -> Prepared[Decision]:
    return Prepared(lambda: round_robin(problem), close=never_ends)


@_call("hoards")
def hoards(_: ToyProblem) -> Decision:
    """Allocate ever more memory, slowly enough for the limit to notice."""
    hoard = []
    while True:
        hoard.append(bytearray(16 * MIB))
        time.sleep(0.02)


@_call("hoards-elsewhere")
def hoards_elsewhere(problem: ToyProblem) -> Decision:
    """Start another process that allocates the memory."""
    script = "import time; hoard = bytearray(400 * 2**20); time.sleep(600)"
    subprocess.run([sys.executable, "-c", script], check=True)
    return round_robin(problem)


@_call("prints-for-ever")
def prints_for_ever(_: ToyProblem) -> Decision:
    while True:
        os.write(2, b"\rstill there")


def endless_build(workload: WorkloadSpec, topology: Topology) -> ToyProblem:
    build(workload, topology).leave(f"built-by-{os.getpid()}")
    return never_ends()


def endless_build_registry() -> Registry:
    """Return a registry with the family and a `build` that never ends."""
    return Registry([with_work(HOSTILE, build=endless_build)])


def endless_quality_registry() -> Registry:
    """Return a registry with the family and a `quality` that never ends."""
    return Registry([with_work(HOSTILE, quality=never_ends)])
