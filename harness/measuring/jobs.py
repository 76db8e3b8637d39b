"""What child processes do: check one variant, time several in turns, profile one."""

import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from harness.contract import Family, Prepared, Progress, Recorder
from harness.contract.registry import Registry
from harness.execution.memory import refuse_no_more, was_refused
from harness.execution.messages import (
    CallEnded,
    CheckDone,
    Closed,
    Failed,
    Message,
    Prepares,
    ProfileDone,
    Reported,
    SamplingDone,
    TurnBegins,
    TurnEnded,
)
from harness.measuring.check import check
from harness.measuring.clock import SystemClock
from harness.measuring.memory import peak
from harness.measuring.sampling import Limits, sample
from harness.model.errors import NotApplicable, ShardbenchError, UsageError, one_line
from harness.model.ids import WorkloadSpec
from harness.model.settings import SamplingRule
from harness.model.topology import Topology

_REPORT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Job:
    """What a child process needs to build a problem; `registry` must be importable by name."""

    registry: Callable[[], Registry]
    family: str
    workload: WorkloadSpec
    topology: Topology


def run_check(job: Job, variant: str, connection: Connection) -> None:
    """Child process: build the problem, check one variant, report progress while it runs."""

    def body(send: Callable[[Message], None]) -> None:
        family, problem = _build(job)

        def call_begins(recorder: Recorder) -> None:
            send(TurnBegins(variant))
            _report_progress(recorder, send)

        def call_ended() -> None:
            send(CallEnded(variant))

        send(Prepares(variant))
        checked = check(
            family, family.find(variant), problem, SystemClock(), call_begins, call_ended
        )
        send(CheckDone(checked, dict(family.work.facts(problem))))

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
    prepared: dict[str, Prepared[Any]] = {}

    def body(send: Callable[[Message], None]) -> None:
        family, problem = _build(job)
        folder = os.open(".", os.O_PATH)  # whatever it is called, and whether it still is

        def turn_begins(name: str) -> None:
            os.fchdir(folder)  # the one before may have changed it
            send(TurnBegins(name))

        def decided(name: str, decision: Any) -> None:
            send(CallEnded(name))
            if family.work.fingerprint(decision) != fingerprints[name]:
                raise ShardbenchError("Its decision changed from one call to the next.")

        for name in fingerprints:
            send(Prepares(name))
            prepared[name] = family.find(name).prepared(problem)
        times = sample(
            prepared,
            reference,
            SystemClock(),
            rule,
            turn_begins=turn_begins,
            decided=decided,
            turn_ended=lambda name, block, turn: send(
                TurnEnded(name, block, turn.wall_s, turn.cpu_s, turn.thread_cpu_s)
            ),
            limits=limits,
        )
        send(SamplingDone(times))

    _child(connection, body, prepared)


def run_profile(
    job: Job, variants: tuple[str, ...], seconds: float, connection: Connection
) -> None:
    """Child process: call variants in turns, without a profiler and with one."""
    prepared: dict[str, Prepared[Any]] = {}

    def body(send: Callable[[Message], None]) -> None:
        from harness.measuring.profile.profiler import profile

        family, problem = _build(job)
        for name in variants:
            send(Prepares(name))
            prepared[name] = family.find(name).prepared(problem)
        profiled = profile(
            family.name,
            prepared,
            SystemClock(),
            seconds,
            turn_begins=lambda name: send(TurnBegins(name)),
            turn_ended=lambda name: send(CallEnded(name)),
        )
        send(ProfileDone(profiled))

    _child(connection, body, prepared)


class _BadInput(Exception):
    """The problem cannot be built because of what the user asked for."""


def _build(job: Job) -> tuple[Family[Any, Any], Any]:
    try:
        family = job.registry().find(job.family)
        return family, family.work.build(job.workload, job.topology)
    except UsageError as error:
        raise _BadInput(str(error)) from None


def _child(
    connection: Connection,
    body: Callable[[Callable[[Message], None]], None],
    prepared: Mapping[str, Prepared[Any]] | None = None,
) -> None:
    """Send what `body` sends or why it failed, then close what was prepared."""
    send = _sender(connection)
    try:
        body(send)
    except BaseException as error:  # a variant may raise anything; it must not take the sweep along
        refuse_no_more()
        if os.environ.get("SHARDBENCH_TRACEBACK"):
            traceback.print_exc()
        with suppress(Exception):
            sys.stdout.flush()
        send(_failure(error))
    if prepared is not None:
        for variant in prepared.values():
            with suppress(BaseException):  # all is told; the rest ends with the process
                variant.close()
        send(Closed())


def _failure(error: BaseException) -> Failed:
    match error:
        case _BadInput():
            return Failed(str(error), bad_input=True)
        case NotApplicable():
            return Failed(str(error), not_applicable=True)
        case ShardbenchError():
            return Failed(str(error))
    try:
        return Failed(one_line(error), out_of_memory=was_refused(error))
    except BaseException:  # even its text is code of the variant
        return Failed(type(error).__name__)


def _sender(connection: Connection) -> Callable[[Message], None]:
    lock = threading.Lock()
    owner, pipe = os.getpid(), os.fstat(connection.fileno())

    def send(message: Message) -> None:
        if os.getpid() != owner:  # a fork that went on where it should have ended
            os._exit(1)
        with lock:
            try:
                # Where a variant has closed it, a file of its own may have its number by now.
                if not os.path.samestat(pipe, os.fstat(connection.fileno())):
                    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
                connection.send(message)
            except OSError as error:
                if error.errno != errno.EPIPE:
                    threading.Event().wait()  # the parent has noticed and stops this process
                os.killpg(0, signal.SIGKILL)  # the parent is gone

    return send


def _report_progress(recorder: Recorder, send: Callable[[Message], None]) -> None:
    def report() -> None:
        wait = threading.Event()
        while not wait.wait(_REPORT_SECONDS):
            with suppress(Exception):  # it looks at what another thread changes; the next may do
                progress = recorder.progress()
                is_known = isinstance(progress, Progress)
                send(Reported(progress if is_known else None, peak()))

    threading.Thread(target=report, daemon=True).start()
