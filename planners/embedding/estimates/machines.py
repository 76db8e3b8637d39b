"""Calibrated machines, by whose estimate plans are judged."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from harness.contract import Machine, UsageError, read_machine, unknown

TO_CALIBRATE = "`shardbench calibrate -o machine.toml` measures this machine in about six minutes"

LINKS = "links.bytes_per_ms"
"""The bandwidth of an all-to-all between a machine's ranks, as `record/scripts/links.py` fits."""


@cache
def known_machines() -> Mapping[str, Machine]:
    """Return the machines that shardbench includes, by name."""
    with resources.as_file(resources.files("planners.embedding") / "data" / "machines") as folder:
        return {path.stem: read_machine(path) for path in sorted(folder.glob("*.toml"))}


def devices() -> dict[str, str]:
    """Return the device of each known machine, by the machine's name."""
    return {name: machine.device for name, machine in known_machines().items()}


def find_machine(machine: Machine | str | Path) -> Machine:
    """Return a known machine by name, or that of a file of `shardbench calibrate`.

    Raises UsageError for an unknown name, and for a file that is not one.
    """
    if isinstance(machine, Machine):
        return machine
    name = str(machine)
    if name in known_machines():
        return known_machines()[name]
    if not name.endswith(".toml"):
        raise unknown("machine", name, known_machines())
    read = read_machine(name)
    if not any(".forward." in figure for figure in read.figures):
        raise UsageError(f"{name} has no coefficients of kernels; calibrate again.")
    return read


def machine_at_hand() -> Machine | None:
    """Return the known machine with this process's GPU, or None."""
    import torch

    if not torch.cuda.is_available():
        return None
    device = torch.cuda.get_device_name()
    return next((known for known in known_machines().values() if known.device == device), None)
