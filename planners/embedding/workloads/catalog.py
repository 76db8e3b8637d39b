"""The embedding family's workloads by name or path, with their parameters."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal

from msgspec import Meta

from harness.contract import (
    Count,
    Parameters,
    Seed,
    Topology,
    UsageError,
    Workload,
    WorkloadSpec,
    is_captured_file,
    read_file,
    read_parameters,
    unknown,
)
from planners.embedding.tables.files import (
    MOST_TABLES,
    SUFFIXES,
    Table,
    is_table_file,
    read_bytes,
    read_tables,
)
from planners.embedding.workloads.published import POOLING_FACTORS, PUBLISHED

MEMORY = {"roomy": 0.4, "tight": 2.0, "mixed": 2.0}
"""Settings of the parameter `memory`: bytes of all tables as a share of the usable HBM."""

KernelSet = Literal["all", "cached", "fused"]
HBM = (0.45, 0.7, 0.9, 1.3, 2.5)
"""The HBM of a `mixture` as a share of its tables' bytes; its seed draws one of these."""
DDR = (0.3, 0.7, 2.0)

_Tables = Annotated[int, Meta(ge=1, le=MOST_TABLES)]
_Share = Annotated[float, Meta(gt=0, le=100)]


class SizedParameters(Parameters, frozen=True):
    """Parameters that scale the rows of all tables.

    `memory` makes the tables fill a share of the HBM. `weights=cpu` makes the weights real tensors
    of `mib` MiB in total, which planners may copy; on the meta device copying costs nothing. The
    default is small because planners before 2022-10 kept a copy for every proposal.
    """

    memory: Literal["roomy", "tight", "mixed"] | None = None
    weights: Literal["meta", "cpu"] = "meta"
    mib: Annotated[int, Meta(ge=1, le=65_536)] | None = None

    def __post_init__(self) -> None:
        if self.memory and self.weights == "cpu":
            raise ValueError("'memory' and 'weights=cpu' both scale the rows; give one of them")
        if self.mib and self.weights == "meta":
            raise ValueError("'mib' must come with 'weights=cpu'")

    @property
    def weight_bytes(self) -> int:
        """The bytes of all real weights."""
        return (self.mib or 12) * 2**20


class SampleParameters(SizedParameters, frozen=True):
    """Parameters of a sample: number of tables (None: all), seed, and the scale of the rows."""

    tables: Count | None = None
    seed: Seed | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seed is not None and self.tables is None:
            raise ValueError("'seed' must come with 'tables', the number of tables to sample")


class SyntheticParameters(SizedParameters, frozen=True):
    """Parameters of `synthetic`: number of tables, seed, and the scale of the rows."""

    tables: _Tables = 100
    seed: Seed = 0


class MixtureParameters(Parameters, frozen=True):
    """Parameters of `mixture`; each parameter that is None is drawn with the seed."""

    tables: _Tables | None = None
    seed: Seed = 0
    kernels: KernelSet | None = None
    hbm: _Share | None = None
    ddr: _Share | None = None


_SYNTHETIC_DIMS = (16, 32, 64, 128, 256)
_SYNTHETIC = Workload(
    "synthetic",
    "ads-scale tables, made up: rows 10^U(3, 8), dimension and pooling factor uniform over a few "
    "values; tables=100, seed=0 unless given",
    "random.Random(seed), three draws per table",
)

_MIXTURE = Workload(
    "mixture",
    "8 to 30 tables from one row to a few giants, made up, with kernels, sharding types, HBM "
    f"({HBM[0]} to {HBM[-1]} of the tables) and host memory that the seed draws; a search's test",
    "random.Random(seed)",
)
_MIXTURE_DIMS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)


def synthetic(tables: int, seed: int) -> tuple[Table, ...]:
    """Generate ads-scale tables; with the same seed, a larger number only appends tables."""
    rng = random.Random(seed)
    return _generated(rng, tables, lambda: rng.uniform(3, 8), _SYNTHETIC_DIMS)


def mixture_tables(asked: MixtureParameters) -> tuple[Table, ...]:
    """Generate the tables of a workload `mixture`."""
    rng = random.Random(asked.seed)
    drawn = rng.randint(8, 30)

    def exponent() -> float:
        return rng.uniform(0, 8.2 if rng.random() < 0.1 else 7.3)

    return _generated(rng, asked.tables or drawn, exponent, _MIXTURE_DIMS)


def _generated(
    rng: random.Random, tables: int, exponent: Callable[[], float], dims: tuple[int, ...]
) -> tuple[Table, ...]:
    """Draw tables in order: rows (10 ** exponent()), then dimension, then pooling factor."""
    return tuple(
        Table(
            name=f"table_{index}",
            rows=round(10 ** exponent()),
            dim=rng.choice(dims),
            pooling_factors=(float(rng.choice(POOLING_FACTORS)),),
        )
        for index in range(tables)
    )


def list_workloads() -> tuple[Workload, ...]:
    """Return the workloads that have names; a user's file is also a workload, named by its path."""
    return (*(known.described(name) for name, known in PUBLISHED.items()), _SYNTHETIC, _MIXTURE)


def assigned(name: str) -> str:
    """Return, as text, the attributes that no source has and that are assigned here, or ''."""
    if name in (_SYNTHETIC.name, _MIXTURE.name):
        return "rows, dimension, pooling factor"
    return PUBLISHED[name].assigned if name in PUBLISHED else ""


def parameters_of(
    spec: WorkloadSpec,
) -> SampleParameters | SyntheticParameters | MixtureParameters:
    """Return a workload's parameters; raises UsageError for an unknown workload or parameter."""
    if spec.name == _MIXTURE.name:
        return read_parameters(spec, MixtureParameters)
    if spec.name == _SYNTHETIC.name:
        return read_parameters(spec, SyntheticParameters)
    if not is_table_file(spec.name) and spec.name not in PUBLISHED:
        files = (f"FILE{suffix}" for suffix in (*SUFFIXES, ".json", ".json.gz"))
        known = (*PUBLISHED, _SYNTHETIC.name, _MIXTURE.name, *files)
        raise unknown("workload", spec.name, known)
    return read_parameters(spec, SampleParameters)


def sizes_of(spec: WorkloadSpec) -> SizedParameters:
    """Return the parameters that scale a workload's rows; raises as `parameters_of` does."""
    asked = parameters_of(spec)
    return asked if isinstance(asked, SizedParameters) else SizedParameters()


def sized_tables(spec: WorkloadSpec, usable_hbm: int) -> tuple[Table, ...]:
    """Return a workload's tables, scaled as its parameters ask, to `usable_hbm` bytes in all."""
    tables, sizes = load_tables(spec), sizes_of(spec)
    if sizes.weights == "cpu":
        return scaled(tables, sizes.weight_bytes)
    return scaled(tables, int(MEMORY[sizes.memory] * usable_hbm)) if sizes.memory else tables


def load_tables(spec: WorkloadSpec) -> tuple[Table, ...]:
    """Return the tables of a workload: one of `list_workloads`, or a path to .csv or .parquet.

    A sample keeps the original order of its tables. Rows are not scaled: see `sized_tables`. Raises
    UsageError for an unknown workload, a wrong parameter, or a bad file.
    """
    asked = parameters_of(spec)
    if isinstance(asked, MixtureParameters):
        return mixture_tables(asked)
    if isinstance(asked, SyntheticParameters):
        return synthetic(asked.tables, asked.seed)
    tables = read_tables(spec.name) if is_table_file(spec.name) else PUBLISHED[spec.name].tables()
    if asked.tables is None:
        return tables
    if asked.tables > len(tables):
        raise UsageError(
            f"Parameter 'tables' of workload '{spec}' must be a whole number from 1 to "
            f"{len(tables)}, the tables that it has, not '{asked.tables}'."
        )
    chosen = random.Random(asked.seed or 0).sample(range(len(tables)), asked.tables)
    return tuple(tables[index] for index in sorted(chosen))


def label(spec: WorkloadSpec) -> WorkloadSpec:
    """Return the workload under its name in results: for a file, base name and content hash.

    Raises UsageError for an unusable workload or file, before any process is started.
    """
    if is_captured_file(spec.name):
        from planners.embedding.capture.file import read_problem

        _check_no_parameters(spec)
        read_problem(spec.name)
        return spec.of_file(read_file(spec.name))
    load_tables(spec)
    return spec.of_file(read_bytes(spec.name)) if is_table_file(spec.name) else spec


def brings(spec: WorkloadSpec) -> Topology | None:
    """Return the machines of a captured file, else None; raises UsageError for a bad file."""
    if not is_captured_file(spec.name):
        return None
    from planners.embedding.capture.file import read_problem

    _check_no_parameters(spec)
    return read_problem(spec.name).topology.machines()


def _check_no_parameters(spec: WorkloadSpec) -> None:
    if spec.parameters:
        raise UsageError(f"A captured workload takes no parameters; write '{spec.name}' alone.")


def scaled(tables: tuple[Table, ...], total_bytes: float) -> tuple[Table, ...]:
    """Return the tables with all row counts scaled by one factor, so that they total `total_bytes`.

    Row counts are rounded, to at least 1; tables of 1 row are not scaled. The total differs from
    `total_bytes` by at most half a row per table, unless even one row per table takes more.
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
    # Bisection: the total never falls as the factor grows.
    while low < (middle := (low + high) / 2) < high:
        if total(middle) <= total_bytes:
            low = middle
        else:
            high = middle
    return at(min(low, high, key=lambda factor: abs(total(factor) - total_bytes)))
