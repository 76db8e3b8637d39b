"""Which machines a problem is on: those that are named, or those that its workload brings."""

from functools import cache
from importlib import resources
from typing import Any

from harness.contract import Family
from harness.model.errors import UsageError, unknown
from harness.model.files import read_file
from harness.model.ids import WorkloadSpec
from harness.model.topology import CAPTURED, Topology
from harness.topologies.csv_files import read_topologies


def placed_on(
    family: Family[Any, Any],
    workload: WorkloadSpec,
    name: str | None = None,
    gpus: int | None = None,
) -> Topology:
    """Return the topology of a problem: the one of that name, sized, or what the workload brings.

    A captured workload brings the machines that it was captured with. They are called `captured`,
    and stand in unless others are named, on which it is then planned instead.

    Raises:
        UsageError: no topology is named and the workload brings none, `captured` is named with
            another number of GPUs, or what is named does not exist.
    """
    if name not in (None, CAPTURED):
        if gpus is None:
            raise UsageError(f"Say with --gpus how many GPUs of '{name}' there are.")
        return find_topology(name, gpus)
    brought = family.brings(workload)
    if brought is None:
        if name is None:
            family.label(workload)  # that there is none of that name is said first
            raise UsageError(
                f"Workload '{workload}' of family '{family.name}' is placed on no machine yet: "
                "name one with --topology, and with --gpus how many GPUs."
            )
        raise UsageError(
            f"Workload '{workload}' brings no topology of its own, so name another one than "
            f"'{CAPTURED}'."
        )
    if gpus not in (None, brought.gpus):
        raise UsageError(
            f"'{workload}' was captured on {brought.gpus} GPUs, not on {gpus}; name a --topology "
            "to plan it for others."
        )
    return brought


@cache
def presets() -> dict[str, Topology]:
    """Return the machines that come with shardbench, by name."""
    text = (
        resources.files("harness.topologies")
        .joinpath("data/topologies.csv")
        .read_text(encoding="utf-8")
    )
    return read_topologies(text, "topologies.csv")


def find_topology(name: str, gpus: int) -> Topology:
    """Return a preset, or the topology in a CSV file (`FILE.csv` or `FILE.csv#NAME`), sized.

    Raises:
        UsageError: no such topology, an unreadable file, or a number of GPUs it cannot have.
    """
    path, _, wanted = name.partition("#")
    if not path.endswith(".csv"):
        if name not in presets():
            raise unknown("topology", name, presets())
        return presets()[name].sized(gpus)
    try:
        text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} cannot be read: a CSV file must be UTF-8 text.") from None
    found = read_topologies(text, path)
    if wanted:
        if wanted not in found:
            raise unknown(f"topology in {path}", wanted, found)
        return found[wanted].sized(gpus)
    if len(found) > 1:
        raise UsageError(
            f"{path} lists {len(found)} topologies; write {path}#NAME for one of them."
        )
    return next(iter(found.values())).sized(gpus)
