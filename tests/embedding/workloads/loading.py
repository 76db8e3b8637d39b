"""Loads workloads by their names."""

from harness.model.ids import WorkloadSpec
from planners.embedding.tables.files import Table
from planners.embedding.workloads.catalog import list_workloads, load_tables

NAMES = [workload.name for workload in list_workloads()]


def load(text: str) -> tuple[Table, ...]:
    return load_tables(WorkloadSpec.parse(text))
