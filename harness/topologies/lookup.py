"""Find the topology of a name, a file or a captured workload."""

from functools import cache
from typing import Any

from harness.contract import Family
from harness.contract.abilities.topology import TopologyRow
from harness.model.errors import UsageError, unknown
from harness.model.files import read_file
from harness.model.ids import WorkloadSpec
from harness.model.topology import CAPTURED, Topology
from harness.topologies.csv_files import data_text, read_rows, read_topologies


@cache
def presets() -> dict[str, Topology]:
    """Return the machines that come with shardbench, by name."""
    return read_topologies(data_text("topologies.csv"), "topologies.csv")


def _text(path: str) -> str:
    """Return the text of a user's file; raises UsageError where it is none."""
    try:
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} cannot be read: it must be UTF-8 text.") from None


def find_topology(name: str, gpus: int) -> Topology:
    """Return a preset, or the topology in a CSV file (`FILE.csv` or `FILE.csv#NAME`), sized.

    Raises UsageError where there is none, or not with `gpus` GPUs.
    """
    path, _, wanted = name.partition("#")
    if not path.endswith(".csv"):
        if name not in presets():
            raise unknown("topology", name, presets())
        return presets()[name].sized(gpus)
    found = read_topologies(_text(path), path)
    if wanted not in ("", *found):
        raise unknown(f"topology in {path}", wanted, found)
    if not wanted and len(found) > 1:
        raise UsageError(
            f"{path} lists {len(found)} topologies; write {path}#NAME for one of them."
        )
    return found[wanted or next(iter(found))].sized(gpus)


def find_rows(name: str) -> list[TopologyRow]:
    """Return the rows that a preset, `FILE.csv` or `FILE.csv#NAME` means, or raise UsageError."""
    path, _, wanted = name.partition("#")
    if not path.endswith(".csv"):
        find_topology(name, 1)  # raises for an unknown name
        rows = read_rows(data_text("topologies.csv"), name)
        return [TopologyRow(name, row.texts) for row in rows if row.texts["name"] == name]
    rows = read_rows(_text(path), path)
    chosen = [row for row in rows if wanted in ("", row.texts["name"])]
    if not chosen:
        raise unknown(f"topology in {path}", wanted, {row.texts["name"] for row in rows})
    return chosen


def placed_on(
    family: Family[Any, Any],
    workload: WorkloadSpec,
    name: str | None = None,
    gpus: int | None = None,
) -> Topology:
    """Return the topology of a problem: the named one, sized, or the captured workload's own.

    A captured workload brings the machines that it was captured with, which are called `captured`.
    Raises UsageError where none is named and none brought, where `captured` is named with another
    number of GPUs, or where the named one does not exist.
    """
    if name not in (None, CAPTURED):
        if gpus is None:
            raise UsageError(f"Say with --gpus how many GPUs of '{name}' there are.")
        return find_topology(name, gpus)
    brought = family.brings(workload)
    if brought is None:
        if name is None:
            family.label(workload)  # raises first where there is none of that name
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
