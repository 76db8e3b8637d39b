"""Captured files as workloads."""

from harness.contract import Topology, UsageError, WorkloadSpec
from harness.contract.captured_file import is_captured_file
from harness.model.files import read_file


def is_captured(workload: WorkloadSpec) -> bool:
    """Return whether a workload is a captured file, by its name."""
    return is_captured_file(workload.name)


def captured_label(workload: WorkloadSpec) -> WorkloadSpec:
    """Return the name of a captured file in results; raises UsageError where it cannot be used."""
    from planners.embedding.capture.file import read_problem

    _check_parameters(workload)
    read_problem(workload.name)
    return workload.of_file(read_file(workload.name))


def brought(workload: WorkloadSpec) -> Topology | None:
    """Return a captured file's machines, None for others; raises UsageError for a bad file."""
    if not is_captured(workload):
        return None
    from planners.embedding.capture.file import read_machines

    _check_parameters(workload)
    return read_machines(workload.name)


def _check_parameters(workload: WorkloadSpec) -> None:
    if workload.parameters:
        raise UsageError(f"A captured workload takes no parameters; write '{workload.name}' alone.")
