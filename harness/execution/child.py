"""Run a callable in a child process under limits, then kill the child and its descendants."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from typing import Any, Self

from msgspec.structs import replace

from harness.execution.bootstrap import run_child
from harness.execution.lines import Lines
from harness.execution.memory import has_more_than, mentions_memory_error
from harness.execution.messages import (
    NO_MESSAGE,
    Closed,
    Failed,
    Message,
    Note,
    Result,
    Stage,
    decode,
)
from harness.execution.output import Output
from harness.execution.server import end_orphans, start_process
from harness.model.machine import GIB, default_memory_gib

_POLL_SECONDS = 0.1
_END_SECONDS = 10.0
_EXIT_CODE_SECONDS = 1.0
_LOOK_AT_MEMORY_SECONDS = 0.25
_CLOSING_SECONDS = 30.0  # the result is known by then


def run(
    work: Callable[..., Any],
    *arguments: Any,
    first: Stage,
    listen: Callable[[Any], None] = lambda message: None,
    memory_gib: float | None = None,
) -> Any | Failed:
    """Call `work` in a child process; return its result, or a `Failed` with the reason.

    The child is killed if a stage takes too long, if the child and its children use too much
    memory, or if `listen` raises.

    Args:
        work: the function to run; it is called with the arguments and a `Report`.
        arguments: the arguments of `work`, which must be picklable.
        first: the stage that the work begins with; the work reports later stages itself.
        listen: called with each `Stage` that begins, and with the content of each `Note`.
        memory_gib: the memory limit in GiB; None means 90 % of the machine's memory.

    Raises:
        ShardbenchError: no process can be started.
    """
    with Child(work, *arguments, memory_gib=memory_gib) as process:
        stage, began = first, time.monotonic()
        while True:
            message = process.receive(_POLL_SECONDS)
            elapsed = time.monotonic() - began
            match message:
                case Result(value):
                    process.wait_until_closed()
                    return value
                case Failed():
                    failed = process.over_memory() if message.cause == "memory" else message
                    process.wait_until_closed()
                    break
                case Stage():
                    stage, began = message, time.monotonic()
                    listen(message)
                case Note(content):
                    listen(content)
            if process.is_over_memory():
                failed = process.over_memory()
                break
            # Only if no message is waiting: it may report that the stage is over.
            if message is None and elapsed > stage.seconds:
                failed = Failed(f"{stage.what} was stopped after {elapsed:.0f} s", "time")
                break
        return replace(failed, stage=stage, elapsed_s=elapsed, output=process.output.last())


class Child:
    """A child process and its messages; leaving the `with` block kills it and its descendants.

    `output` is the output that it prints. Raise ShardbenchError if no process can be started.
    """

    def __init__(
        self, work: Callable[..., Any], *arguments: Any, memory_gib: float | None = None
    ) -> None:
        self._memory_gib = default_memory_gib() if memory_gib is None else memory_gib
        self._looked_at_memory = time.monotonic()
        self._end: Failed | None = None
        context = get_context("forkserver")
        self._messages, messages = context.Pipe(duplex=False)
        printed, output = context.Pipe(duplex=False)
        self.output = Output(printed)
        self._process = context.Process(
            target=run_child,
            args=(work, arguments, messages, output, self._memory_gib),
            daemon=False,
        )
        self._lines = Lines(self._messages, self.output, lambda: self._process.exitcode is not None)
        with messages, output:
            start_process(self._process)

    def receive(self, timeout: float) -> Message | None:
        """Return the next message, None after `timeout` seconds, or `Failed` for a dead child."""
        if self._end is None:
            try:
                line = self._lines.next(timeout)
            except EOFError:
                self._end = self._how_it_ended()
            else:
                message = None if line is None else decode(line)
                if message is not NO_MESSAGE:
                    return message
                self._end = NO_MESSAGE
        return self._end

    def _how_it_ended(self) -> Failed:
        self._process.join(_EXIT_CODE_SECONDS)
        code = self._process.exitcode
        if code is None:
            return Failed("It closed the connection of its child process.")
        reason = f"The child process {how_it_ended(code)} without a result"
        if code < 0 and mentions_memory_error(self.output.last()):
            reason += f", refused memory; its memory limit is {self._memory_gib:g} GiB"
        return Failed(f"{reason}.")

    def wait_until_closed(self) -> None:
        """Wait until the work's cleanup is over; ignore its failure, and stop after 30 s."""
        until = time.monotonic() + _CLOSING_SECONDS
        while time.monotonic() < until:
            if isinstance(self.receive(_POLL_SECONDS), Closed | Failed):
                return

    def is_over_memory(self) -> bool:
        """Return whether the child and its descendants use more memory than their limit.

        Memory is only checked every 0.25 s; a call in between returns False.
        """
        now = time.monotonic()
        if now - self._looked_at_memory < _LOOK_AT_MEMORY_SECONDS or self._process.pid is None:
            return False
        self._looked_at_memory = now
        return has_more_than(self._process.pid, self._memory_gib * GIB)

    def over_memory(self) -> Failed:
        """Return the `Failed` for a child that exceeded its memory limit."""
        return Failed(f"passed its memory limit of {self._memory_gib:g} GiB", "memory")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the child and all its descendants."""
        pid = self._process.pid
        if pid is not None:
            try:  # even if the child has ended: its process group may still have members
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:  # the child has not made its group yet, or all have ended
                with suppress(ProcessLookupError):
                    self._process.kill()
            self._process.join(_END_SECONDS)
            end_orphans(pid)
        self._messages.close()
        self.output.close()


def how_it_ended(code: int) -> str:
    """Describe an exit code in words; a negative code is minus the signal that killed a process."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:  # a real-time signal has no name
        return f"was killed by signal {-code}"
