"""The workloads of the embedding family: published models, generated ones, a user's files."""

import random
from dataclasses import replace

from harness.contract import UsageError, Workload, WorkloadSpec
from harness.model.errors import unknown
from harness.model.ids import at_most, one_of, whole_number
from planners.embedding.published_tables import POOLING_FACTORS, PUBLISHED, Published
from planners.embedding.tables import (
    MOST_TABLES,
    SUFFIXES,
    Table,
    is_table_file,
    read_bytes,
    read_tables,
)

MEMORY = {"roomy": 0.4, "tight": 2.0, "mixed": 2.0}
"""Settings of the parameter `memory`: what the tables take, in parts of the usable HBM."""

PARAMETERS = ("tables", "seed", "memory")

_SYNTHETIC_DIMS = (16, 32, 64, 128, 256)
_SYNTHETIC = Workload(
    "synthetic",
    "ads-scale tables, made up: rows 10^U(3, 8), dimension and pooling factor uniform over a few "
    "values; tables=100, seed=0 unless given",
    "random.Random(seed), three draws per table",
)


def synthetic(tables: int, seed: int) -> tuple[Table, ...]:
    """Return generated tables of ads scale; more of them extend fewer of the same seed.

    Each table takes three draws of random.Random(seed), in this order: rows 10^U(3, 8); dimension
    from 16, 32, 64, 128, 256; pooling factor from 1, 2, 5, 10, 20, 50, 100 indices per sample.
    """
    rng = random.Random(seed)
    return tuple(
        Table(
            name=f"table_{index}",
            rows=round(10 ** rng.uniform(3, 8)),
            dim=rng.choice(_SYNTHETIC_DIMS),
            pooling_factors=(float(rng.choice(POOLING_FACTORS)),),
        )
        for index in range(tables)
    )


def _summary(workload: Published) -> str:
    tables = workload.tables()
    gib = sum(table.bytes for table in tables) / 2**30
    text = f"{workload.about}: {len(tables)} tables, {gib:,.1f} GiB"
    return f"{text}; assigned, not published: {workload.assigned}" if workload.assigned else text


def list_workloads() -> tuple[Workload, ...]:
    """Return the named workloads; a user's file is a workload too, named by its path."""
    return (
        *(Workload(name, _summary(known), known.source) for name, known in PUBLISHED.items()),
        _SYNTHETIC,
    )


def assigned(name: str) -> str:
    """Return which attributes of a workload are assigned here because its source lacks them.

    The empty string where there are none, and for a user's file.
    """
    if name == _SYNTHETIC.name:
        return "rows, dimension, pooling factor"
    return PUBLISHED[name].assigned if name in PUBLISHED else ""


def memory_setting(spec: WorkloadSpec) -> str | None:
    """Return the parameter `memory`, a key of MEMORY, or None where it is not given.

    Raises:
        UsageError: it is something else.
    """
    if "memory" not in spec.parameters:
        return None
    *others, last = MEMORY
    return spec.get("memory", one_of(MEMORY), last, f"{', '.join(others)} or {last}")


def _sampled(tables: tuple[Table, ...], spec: WorkloadSpec, seed: int) -> tuple[Table, ...]:
    if "tables" not in spec.parameters:
        if "seed" in spec.parameters:
            raise UsageError(
                f"Parameter 'seed' of workload '{spec}' must come with 'tables', "
                "the number of tables to sample."
            )
        return tables
    allowed = f"a whole number from 1 to {len(tables)}, the tables that it has"
    count = spec.get("tables", at_most(len(tables)), len(tables), allowed)
    chosen = random.Random(seed).sample(range(len(tables)), count)
    return tuple(tables[index] for index in sorted(chosen))


def load_tables(spec: WorkloadSpec) -> tuple[Table, ...]:
    """Return the tables of a workload: one of `list_workloads`, or a path to .csv or .parquet.

    `tables=N` samples N tables in their original order, with random.Random(seed) and seed 0 unless
    given; for `synthetic` it is how many to generate. `memory` is checked but not applied: see
    `scaled`.

    Raises:
        UsageError: no such workload, a parameter it does not have, or a file that cannot be used.
    """
    is_file = is_table_file(spec.name)
    names = (*PUBLISHED, _SYNTHETIC.name)
    if not is_file and spec.name not in names:
        raise unknown(
            "workload",
            spec.name,
            (*names, *(f"FILE{suffix}" for suffix in (*SUFFIXES, ".json", ".json.gz"))),
        )
    spec.check_parameters(PARAMETERS)
    memory_setting(spec)
    seed = spec.get("seed", whole_number, 0, "a whole number of at least 0")
    if spec.name == _SYNTHETIC.name:
        allowed = f"a whole number from 1 to {MOST_TABLES:,}"
        count = spec.get("tables", at_most(MOST_TABLES), 100, allowed)
        return synthetic(count, seed)
    tables = read_tables(spec.name) if is_file else PUBLISHED[spec.name].tables()
    return _sampled(tables, spec, seed)


def label(spec: WorkloadSpec) -> WorkloadSpec:
    """Return the workload as results name it: a file by its base name and a hash of its content.

    Raises:
        UsageError: the file cannot be read.
    """
    return spec.of_file(read_bytes(spec.name)) if is_table_file(spec.name) else spec


def scaled(tables: tuple[Table, ...], total_bytes: float) -> tuple[Table, ...]:
    """Return the tables with all row counts multiplied by the factor that meets `total_bytes` best.

    Row counts are rounded and stay at least 1, tables of 1 row stay so, and tables with equal row
    counts keep them equal. The result misses the goal by at most half a row per table, unless the
    goal is below the bytes of one row each, or no table has more than one row.
    """
    most = max((table.rows for table in tables), default=1)
    if most == 1:
        return tables

    def at(factor: float) -> tuple[Table, ...]:
        return tuple(
            replace(table, rows=max(1, round(table.rows * factor)) if table.rows > 1 else 1)
            for table in tables
        )

    def total(factor: float) -> int:
        return sum(table.bytes for table in at(factor))

    low, high = 0.5 / most, 1.0  # at `low`, every table is at 1 row
    while total(high) < total_bytes:
        high *= 2
    while low < (middle := (low + high) / 2) < high:
        if total(middle) <= total_bytes:
            low = middle
        else:
            high = middle
    return at(min(low, high, key=lambda factor: abs(total(factor) - total_bytes)))
