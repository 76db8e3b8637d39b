"""Reads and writes a machine's calibrated coefficients, a column of a topology file."""

import math
import re
from collections.abc import Mapping

from harness.contract import UsageError

# The figures of compute that TorchRec's `Topology` takes: bytes per millisecond, two factors.
DEVICE_BW = "device_bw"
BACKWARD = "bwd_compute_multiplier"
WEIGHTED_BACKWARD = "weighted_feature_bwd_compute_multiplier"

_NAME = re.compile(r"[a-z_]+(\.[a-z_]+)*")


def read_coefficients(text: str) -> dict[str, float]:
    """Parse `name=value` pairs separated by ';'; raises UsageError if the text is malformed."""
    values: dict[str, float] = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        name, _, value = item.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not _NAME.fullmatch(name) or not (math.isfinite(number) and number >= 0):
            raise UsageError(
                f"The coefficients of a topology must be name=number with ';' between, as "
                f"`shardbench calibrate` writes them, not '{item[:60]}'."
            )
        values[name] = number
    for name in (DEVICE_BW, BACKWARD, WEIGHTED_BACKWARD):
        if values.get(name) == 0:
            raise UsageError(f"The coefficient '{name}' of a topology must be above 0.")
    return values


def write_coefficients(values: Mapping[str, float]) -> str:
    """Return coefficients as text in the form that `read_coefficients` parses."""
    return ";".join(f"{name}={value:.6g}" for name, value in values.items())
