"""The inventory of a workload: its tables, with rows, dimensions, pooling and bytes."""

from collections.abc import Sequence

from harness.contract import (
    Column,
    Inventory,
    Topology,
    WorkloadSpec,
    is_captured_file,
    require_topology,
)
from planners.embedding.tables.files import Table
from planners.embedding.workloads.catalog import assigned, sized_tables, sizes_of

_COLUMNS = (
    Column("name", title="table"),
    Column("rows", kind="count", scale="log"),
    Column("dim", unit="elements", kind="count", scale="linear"),
    Column("features", kind="count", is_shown=False),
    Column("pooling_factor", is_shown=False),
    Column("indices", title="pooling", unit="indices a sample", kind="number", scale="log"),
    Column("dtype"),
    Column("lookup"),
    Column("bytes", kind="bytes", scale="log"),
    Column("sample_bytes", unit="bytes looked up a sample", kind="bytes", is_shown=False),
)
_UNITS = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10}


def inventory(workload: WorkloadSpec, topology: Topology | None) -> Inventory:
    """Return a workload's inventory; raises UsageError if it needs a topology but gets none."""
    made_up = assigned(workload.name)
    notes = (f"Assigned here, not published: {made_up}",) if made_up else ()
    if not is_captured_file(workload.name) and sizes_of(workload).memory is None:
        tables = sized_tables(workload, usable_hbm=0)
    else:
        topology = require_topology(workload, topology)
        from planners.embedding.implementation import build

        tables = build(workload, topology).tables
    return inventory_of(tables, f"Tables of {workload}", notes)


def inventory_of(tables: Sequence[Table], title: str, notes: tuple[str, ...] = ()) -> Inventory:
    """Return the inventory of these tables, with their totals as summary."""
    features = sum(table.features for table in tables)
    rows = sum(table.rows for table in tables)
    summary = (
        f"{_counted(len(tables), 'table')} for {_counted(features, 'feature')}, "
        f"{_counted(rows, 'row')}, {_in_bytes(sum(table.bytes for table in tables))}; "
        f"a sample looks up {sum(table.indices for table in tables):,.4g} rows, "
        f"{_in_bytes(sum(table.sample_bytes for table in tables))}"
    )
    fields = [column.name.replace("pooling_factor", "pooling_text") for column in _COLUMNS]
    cells = tuple(tuple(getattr(table, field) for field in fields) for table in tables)
    return Inventory(title, "table", _COLUMNS, cells, summary, sort="bytes", notes=notes)


def _in_bytes(value: float) -> str:
    unit, size = next((item for item in _UNITS.items() if value >= item[1]), ("bytes", 1))
    return f"{value / size:,.4g} {unit}"


def _counted(amount: int, noun: str) -> str:
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"
