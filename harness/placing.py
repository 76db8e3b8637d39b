"""Which machines a problem is on: those that are named, or those that its workload brings."""

from typing import Any

from harness.errors import UsageError
from harness.naming import WorkloadSpec
from harness.registry import Family
from harness.topologies import CAPTURED, Topology, find_topology


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
