"""The instructions of one call: counted by the processor, or by valgrind on request."""

import ctypes
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from harness.contract import Prepared
from harness.execution.messages import Note, decode, encode
from harness.measuring.garbage import collection_off
from harness.model.errors import ShardbenchError, UsageError

# perf_event_open(2): its number, the event, and the flags disabled, exclude_kernel, exclude_hv
_SYSTEM_CALLS = {"x86_64": 298, "aarch64": 241}
_HARDWARE, _INSTRUCTIONS = 0, 1
_FLAGS = 1 << 0 | 1 << 5 | 1 << 6
_ATTRIBUTE_BYTES = 112
_ENABLE, _DISABLE = 0x2400, 0x2401

_VALGRIND, _CONTROL = "valgrind", "callgrind_control"
_READY = b"ready to be counted\n"
_COLLECTED = re.compile(r"Collected : (\d+)")
_LAST_WORDS = 300


def counted_by_processor(prepared: Prepared[Any]) -> int | None:
    """Return the instructions of a call in user mode, None where they cannot be counted."""
    number = _SYSTEM_CALLS.get(platform.machine())
    if number is None or platform.system() != "Linux":
        return None
    attribute = struct.pack("IIQQQQQ", _HARDWARE, _ATTRIBUTE_BYTES, _INSTRUCTIONS, 0, 0, 0, _FLAGS)
    system = ctypes.CDLL(None, use_errno=True)
    counter = system.syscall(number, attribute.ljust(_ATTRIBUTE_BYTES, b"\0"), 0, -1, -1, 0)
    if counter < 0:
        return None
    with suppress(OSError), os.fdopen(counter, "rb", buffering=0) as file:
        with prepared.installed(), collection_off():
            prepared.begin()
            system.ioctl(counter, _ENABLE, 0)
            try:
                prepared.run()
            finally:
                system.ioctl(counter, _DISABLE, 0)
        return int.from_bytes(file.read(8), "little") or None
    return None


def check_valgrind() -> None:
    """Raise UsageError where valgrind is not to be found."""
    if not (shutil.which(_VALGRIND) and shutil.which(_CONTROL)):
        raise UsageError(f"{_VALGRIND} and {_CONTROL} are needed, and are not on the path.")


def counted_by_valgrind(job: Any, variant: str, seconds: float) -> int:
    """Return the instructions of a call, made in a process of its own that valgrind runs.

    What comes before the call is not counted, but runs some ten times slower than usual, and the
    call some fifty times.

    Args:
        job: the `Job` whose problem is built there.
        variant: the name of the variant.
        seconds: when to give up.

    Raises:
        ShardbenchError: valgrind is not there, cannot run this, or takes longer.
    """
    given = encode(Note((job, variant))).decode().strip()
    call = [_VALGRIND, "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=/dev/null"]
    call += [sys.executable, "-m", __name__, given]
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                call,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env={**os.environ, "PYTHONHASHSEED": "0"},
                start_new_session=True,
            )
        except OSError as error:
            raise ShardbenchError(f"{_VALGRIND}: {error.strerror}") from error
        with process, _ended_after(process, seconds) as ran_out:
            assert process.stdin
            assert process.stdout
            for state in ("on", "off"):
                if process.stdout.readline() != _READY:
                    break
                turned = [_CONTROL, "-i", state, str(process.pid)]
                subprocess.run(turned, capture_output=True, check=False)
                with suppress(BrokenPipeError):
                    process.stdin.write(b"\n")
                    process.stdin.flush()
            code = process.wait()
        said.seek(0)
        told = said.read().decode(errors="replace")
    counted = _COLLECTED.search(told)
    if ran_out:
        raise ShardbenchError(f"{_VALGRIND} took longer than {seconds:g} s")
    if code or not counted or counted[1] == "0":
        raise ShardbenchError(f"{_VALGRIND} counted nothing: {told.strip()[-_LAST_WORDS:]}")
    return int(counted[1])


@contextmanager
def _ended_after(process: "subprocess.Popen[bytes]", seconds: float) -> Iterator[list[bool]]:
    """Kill a process after so many seconds; what is given is not empty then."""
    ran_out: list[bool] = []

    def end() -> None:
        ran_out.append(True)
        process.kill()

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        yield ran_out
    finally:
        timer.cancel()
        process.kill()


def _serve(given: str) -> None:
    """Make the call here, in a process that valgrind runs, when it is told to count."""
    answers = os.dup(1)
    os.dup2(2, 1)  # a planner may print
    message = decode(given.encode())
    assert isinstance(message, Note)
    job, variant = message.content
    family, problem = job.build()
    prepared = family.find(variant).prepared(problem)
    with prepared.installed(), collection_off():
        for is_counted in (False, True):
            prepared.begin()
            if is_counted:
                _wait_at(answers)
            prepared.run()
        _wait_at(answers)
    prepared.close()


def _wait_at(answers: int) -> None:
    os.write(answers, _READY)
    os.read(0, 1)


if __name__ == "__main__":
    _serve(sys.argv[1])
