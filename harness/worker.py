"""Child processes: one for each checked call, one for the timed turns, stopped when over budget."""

import io
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from typing import Any

from harness.check import Checked, check
from harness.clock import SystemClock
from harness.errors import NotApplicable, ShardbenchError, UsageError, one_line
from harness.memory import peak
from harness.naming import WorkloadSpec
from harness.preload import PRELOAD
from harness.registry import Family, Prepared, Progress, Recorder, Registry
from harness.sampling import Limits, SamplingRule, Times, sample
from harness.topologies import Topology

_REPORT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Job:
    """What a child process needs to build a problem; `registry` must be importable by name."""

    registry: Callable[[], Registry]
    family: str
    workload: WorkloadSpec
    topology: Topology


@dataclass(frozen=True, slots=True)
class TurnBegins:
    """The named variant is about to be called."""

    variant: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """One counted turn: its block, and wall and CPU seconds of a call."""

    variant: str
    block: int
    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The checked call is over; what follows is not part of it."""

    variant: str


@dataclass(frozen=True, slots=True)
class Prepares:
    """The named variant is about to be set up, untimed."""

    variant: str


@dataclass(frozen=True, slots=True)
class Reported:
    """How far the checked call has come, where it tells, and its peak memory in bytes so far."""

    progress: Progress | None
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True)
class CheckDone:
    """The checked call passed; `facts` describe the problem."""

    checked: Checked
    facts: dict[str, float | str]


@dataclass(frozen=True, slots=True)
class SamplingDone:
    """All timed turns are over."""

    times: dict[str, Times]


@dataclass(frozen=True, slots=True)
class ProfileDone:
    """A profile as the text of its files, by suffix."""

    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Failed:
    """The child gave up, for a reason in one line.

    `bad_input` says that it is the user's, `not_applicable` that the variant has no part in this.
    """

    reason: str
    bad_input: bool = False
    not_applicable: bool = False


Message = (
    Prepares
    | TurnBegins
    | TurnEnded
    | CallEnded
    | Reported
    | CheckDone
    | SamplingDone
    | ProfileDone
    | Failed
)


def run_check(job: Job, variant: str, connection: Connection) -> None:
    """Child process: build the problem, check one variant, report progress while it runs."""

    def body(send: Callable[[Message], None]) -> None:
        family, problem = _build(job)

        def call_begins(recorder: Recorder) -> None:
            send(TurnBegins(variant))
            _report_progress(recorder, send)

        def call_ended() -> None:
            send(CallEnded(variant))

        checked = check(
            family, family.find(variant), problem, SystemClock(), call_begins, call_ended
        )
        send(CheckDone(checked, dict(family.facts(problem))))

    _child(connection, body)


def run_sampling(
    job: Job,
    fingerprints: dict[str, str],
    reference: str | None,
    rule: SamplingRule,
    limits: Limits,
    connection: Connection,
) -> None:
    """Child process: build the problem once, prepare all variants, time them interleaved.

    `fingerprints` are the checked decisions by variant: what is timed must go on deciding so.
    `limits` are the ratios to the reference that should be told apart, by variant.
    """

    def body(send: Callable[[Message], None]) -> None:
        family, problem = _build(job)

        def decided(name: str, decision: Any) -> None:
            send(CallEnded(name))
            if family.fingerprint(decision) != fingerprints[name]:
                raise ShardbenchError("Its decision changed from one call to the next.")

        prepared: dict[str, Prepared[Any]] = {}
        try:
            for name in fingerprints:
                send(Prepares(name))
                prepared[name] = family.find(name).prepared(problem)
            times = sample(
                prepared,
                reference,
                SystemClock(),
                rule,
                turn_begins=lambda name: send(TurnBegins(name)),
                decided=decided,
                turn_ended=lambda *turn: send(TurnEnded(*turn)),
                limits=limits,
            )
        finally:
            for variant in prepared.values():
                with suppress(Exception):  # the times are taken; the rest ends with the process
                    variant.close()
        send(SamplingDone(times))

    _child(connection, body)


def run_profile(job: Job, variant: str, connection: Connection) -> None:
    """Child process: call one variant under pyinstrument."""

    def body(send: Callable[[Message], None]) -> None:
        from harness.profiling import profile

        family, problem = _build(job)
        prepared = family.find(variant).prepared(problem)
        send(TurnBegins(variant))
        try:
            send(ProfileDone(profile(prepared, SystemClock(), f"{family.name}/{variant}")))
        finally:
            prepared.close()

    _child(connection, body)


class _BadInput(Exception):
    """The problem cannot be built because of what the user asked for."""


def _build(job: Job) -> tuple[Family[Any, Any], Any]:
    try:
        family = job.registry().find(job.family)
        return family, family.build(job.workload, job.topology)
    except UsageError as error:
        raise _BadInput(str(error)) from None


def _child(connection: Connection, body: Callable[[Callable[[Message], None]], None]) -> None:
    os.setsid()  # so that the parent can stop this process together with its own children
    os.dup2(2, 1)  # standard output is the parent's
    if isinstance(sys.stdout, io.TextIOWrapper):  # what is printed is not lost when this is stopped
        sys.stdout.reconfigure(line_buffering=True)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    lock = threading.Lock()

    def send(message: Message) -> None:
        with lock:
            try:
                connection.send(message)
            except OSError:  # the parent is gone
                os.killpg(0, signal.SIGKILL)

    try:
        body(send)
    except _BadInput as error:
        send(Failed(str(error), bad_input=True))
    except NotApplicable as error:
        send(Failed(str(error), not_applicable=True))
    except ShardbenchError as error:
        send(Failed(str(error)))
    except Exception as error:  # a variant may raise anything; it must not take the sweep along
        if os.environ.get("SHARDBENCH_TRACEBACK"):
            traceback.print_exc()
        send(Failed(one_line(error)))


def _end_with_parent() -> None:
    """End this process and what it started as soon as the parent is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)


def _report_progress(recorder: Recorder, send: Callable[[Message], None]) -> None:
    def report() -> None:
        wait = threading.Event()
        while not wait.wait(_REPORT_SECONDS):
            with suppress(Exception):  # it looks at what another thread changes; the next may do
                send(Reported(recorder.progress(), peak()))

    threading.Thread(target=report, daemon=True).start()


class Child:
    """A child process and the messages it sends."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("forkserver")
        self._connection, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=target, args=(*arguments, theirs), daemon=False)
        self._process.start()
        theirs.close()

    def receive(self, timeout: float) -> Message | None:
        """Return the next message, or None after `timeout` seconds; a dead child is Failed."""
        try:
            # What the child forked may keep the pipe open, so its end is waited for beside it.
            ready = wait([self._connection, self._process.sentinel], timeout)
            if not ready:
                return None
            if self._connection not in ready and not self._connection.poll():
                raise EOFError
            message: Message = self._connection.recv()
            return message
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode or 0
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            return Failed(f"The child process {how} without a result.")

    def stop(self) -> None:
        """End the child and whatever it started."""
        if self._process.pid is not None:
            try:  # also where the child is gone: its group may live on
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:  # it has not made its group yet, or all are gone
                with suppress(ProcessLookupError):
                    self._process.kill()
        self._process.join()
        self._connection.close()


@contextmanager
def child(target: Callable[..., None], *arguments: Any) -> Iterator[Child]:
    """Start a child process and stop it on leaving, whatever happens."""
    process = Child(target, *arguments)
    try:
        yield process
    finally:
        process.stop()


def start_server(preload: tuple[str, ...]) -> None:
    """Start the process that children are forked from, with heavy modules imported once.

    Hash randomisation is off in it: torchrec enumerates options in the order of a set of strings,
    so plans with ties would otherwise differ from run to run.
    """
    settings = {"PYTHONHASHSEED": "0", PRELOAD: " ".join(preload)}
    before = {name: os.environ.get(name) for name in settings}
    standard_output = os.dup(1)
    os.environ.update(settings)
    os.dup2(2, 1)  # what is imported may print
    try:
        multiprocessing.get_context("forkserver").set_forkserver_preload(
            ["harness.worker", "harness.preload"]
        )
        forkserver.ensure_running()
    finally:
        os.dup2(standard_output, 1)
        os.close(standard_output)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
