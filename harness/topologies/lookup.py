"""Find a topology by preset name, by file, or from a captured workload."""

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
    """Return the topologies that shardbench includes, by name."""
    return read_topologies(data_text("topologies.csv"), "topologies.csv")


def _text(path: str) -> str:
    """Return the text of a user's file. Raise UsageError if it is not readable UTF-8."""
    try:
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} cannot be read: it must be UTF-8 text.") from None


def find_topology(name: str, gpus: int) -> Topology:
    """Return a preset or a topology of a file (`FILE.csv` or `FILE.csv#NAME`) with `gpus` GPUs.

    Raise UsageError if there is no such topology or if it cannot have `gpus` GPUs.
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
    """Return the rows of a preset, `FILE.csv` or `FILE.csv#NAME`, or raise UsageError if none."""
    path, _, wanted = name.partition("#")
    if not path.endswith(".csv"):
        find_topology(name, 1)  # raises UsageError for an unknown name
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
    """Return the topology `name` with `gpus` GPUs, or else the captured workload's own topology.

    The file of a captured workload includes its topology, which has the name `captured`. Raise
    UsageError if no topology is named and the workload has none, if `gpus` differs from the
    captured number, or if the named topology does not exist.
    """
    if name not in (None, CAPTURED):
        if gpus is None:
            raise UsageError(f"Say with --gpus how many GPUs of '{name}' there are.")
        return find_topology(name, gpus)
    brought = family.brings(workload)
    if brought is None:
        if name is None:
            family.label(workload)  # raises UsageError first if the workload does not exist
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
