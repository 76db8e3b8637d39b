"""Peak resident memory of this process, as far as the system tells it."""

import resource
import sys
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_PEAK_OF_RESIDENT = "5"  # what to write there: proc(5)
_UNIT = 1 if sys.platform == "darwin" else 1024


def begin_peak() -> int:
    """Forget the peak so far, and return the present resident memory in bytes.

    A child starts with the memory of the process that it was forked from, and its set-up may have
    taken more than the call will. Where the system cannot forget, the old peak is returned.
    """
    with suppress(OSError):
        _CLEAR.write_text(_PEAK_OF_RESIDENT)
    return peak()


def peak() -> int:
    """Return the most resident memory in bytes since `begin_peak`."""
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
