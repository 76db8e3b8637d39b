"""The work of one call, counted: exact where time is not."""

import cProfile
import ctypes
import os
import platform
import struct
from contextlib import suppress
from typing import Any

from harness.contract import Prepared
from harness.measuring.turns import collection_off
from harness.model.cell import Work

# perf_event_open(2): its number, the event, and the flags disabled, exclude_kernel, exclude_hv
_SYSTEM_CALLS = {"x86_64": 298, "aarch64": 241}
_HARDWARE, _INSTRUCTIONS = 0, 1
_FLAGS = 1 << 0 | 1 << 5 | 1 << 6
_ATTRIBUTE_BYTES = 112
_ENABLE, _DISABLE = 0x2400, 0x2401


def count_work(prepared: Prepared[Any], is_counted_twice: bool = True) -> Work:
    """Count the work of a call, in one or two calls that are not timed.

    Where the processor counts instructions another call is made for them.
    """
    first, share = _count(prepared)
    second = _count(prepared)[0] if is_counted_twice else None
    instructions = _instructions(prepared)
    if second is None:
        return Work(first, None, share, instructions)
    return Work(min(first, second), abs(first - second), share, instructions)


def _count(prepared: Prepared[Any]) -> tuple[int, float]:
    """Return how many calls the planner's thread makes, and the share of time in built-in ones."""
    profile = cProfile.Profile()
    with prepared.installed(), collection_off():
        prepared.begin()
        profile.enable()
        try:
            prepared.run()
        finally:
            profile.disable()
    entries = profile.getstats()
    calls = sum(entry.callcount for entry in entries) - 1  # the last one disables the profile
    seconds = sum(entry.inlinetime for entry in entries)
    built_in = sum(entry.inlinetime for entry in entries if isinstance(entry.code, str))
    return calls, min(1.0, built_in / seconds) if seconds > 0 else 0.0


def _instructions(prepared: Prepared[Any]) -> int | None:
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
