"""The embedding family's workloads by name or path: published tables, generated ones, and files."""

import csv
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from harness.contract import (
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

if TYPE_CHECKING:
    from planners.embedding.capture.file import CapturedProblem

MEMORY = {"roomy": 0.4, "tight": 2.0, "mixed": 2.0}
"""Settings of the parameter `memory`: bytes of all tables as a share of the usable HBM."""

KernelSet = Literal["all", "cached", "fused"]
HBM = (0.45, 0.7, 0.9, 1.3, 2.5)
"""The HBM of a `mixture` as a share of its tables' bytes; its seed draws one of these."""
DDR = (0.3, 0.7, 2.0)

_Tables = Annotated[int, Meta(ge=1, le=MOST_TABLES)]
_Share = Annotated[float, Meta(gt=0, le=100)]


class TableParameters(Parameters, frozen=True):
    """Parameters of `synthetic`, published models and files: a sample, and the scale of its rows.

    `tables` is the number of tables: without it, all, or 100 synthetic ones. `memory` makes the
    tables fill a share of the HBM. `weights=cpu` makes the weights real tensors of `mib` MiB in
    total, which planners may copy; on the meta device copying costs nothing. The default is small
    because planners before 2022-10 kept a copy for every proposal.
    """

    memory: Literal["roomy", "tight", "mixed"] | None = None
    weights: Literal["meta", "cpu"] = "meta"
    mib: Annotated[int, Meta(ge=1, le=65_536)] | None = None
    tables: _Tables | None = None
    seed: Seed | None = None

    def __post_init__(self) -> None:
        if self.memory and self.weights == "cpu":
            raise ValueError("'memory' and 'weights=cpu' both scale the rows; give one of them")
        if self.mib and self.weights == "meta":
            raise ValueError("'mib' must come with 'weights=cpu'")


class MixtureParameters(Parameters, frozen=True):
    """Parameters of `mixture`; each parameter that is None is drawn with the seed."""

    tables: _Tables | None = None
    seed: Seed = 0
    kernels: KernelSet | None = None
    hbm: _Share | None = None
    ddr: _Share | None = None


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
_SYNTHETIC_DIMS = (16, 32, 64, 128, 256)
_MIXTURE_DIMS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)

_ADS_DIMS = (32, 64, 128, 256)
# The weights, in percent, have a mean of 15.82 indices per sample. The dataset's own mean is 15.81:
# 887,017,990 indices in a batch of 65,536 over 856 tables (its locality_stats.txt).
_POOLING_FACTORS = (1, 2, 5, 10, 20, 50, 100)
_ADS_POOLING_WEIGHTS = (27, 15, 15, 16, 12, 9, 6)

_ADS = "dlrm-856"
_MODELS = {
    _ADS: (
        "dlrm_datasets_2021_t856_rows.csv",
        "the tables of Meta's 856-table ads dataset of 2021 that are not empty",
    ),
    **{
        f"merlin-{model}": (
            "merlin_synthetic_v3.csv",
            f"Merlin's synthetic ads model '{model}', with tables that features share",
        )
        for model in ("tiny", "small", "medium", "large", "jumbo", "colossal")
    },
    "dlrm-dcnv2": ("criteo_mlperf_tables.csv", "MLPerf's DLRM-DCNv2 on multi-hot Criteo Terabyte"),
    "criteo-kaggle": ("criteo_mlperf_tables.csv", "DLRM on one-hot Criteo Kaggle"),
}
"""The packaged file of each published model's tables, and a description."""

_ASSIGNED = {
    _ADS: "dimension, pooling factor",
    _SYNTHETIC.name: "rows, dimension, pooling factor",
    _MIXTURE.name: "rows, dimension, pooling factor",
}


def list_workloads() -> tuple[Workload, ...]:
    """Return the workloads that have names; a user's file is also a workload, named by its path."""
    published = []
    for name, (file, about) in _MODELS.items():
        tables = _published(name)
        gib = sum(table.bytes for table in tables) / 2**30
        text = f"{about}: {len(tables)} tables, {gib:,.1f} GiB"
        if made_up := assigned(name):
            text += f"; assigned, not published: {made_up}"
        published.append(Workload(name, text, _read(file)[0]))
    return (*published, _SYNTHETIC, _MIXTURE)


def _published(name: str) -> tuple[Table, ...]:
    """Return the tables of a published model, in the order of its data file."""
    _, records = _read(_MODELS[name][0])
    tables: list[Table] = []
    for record in records:
        if name == _ADS:
            index, rows = record["table_index"], int(record["rows_max_index_plus_1"])
            if rows > 1:  # in this list, no sample looks up a table with 1
                # Each table has its own generator, so its values do not depend on the sample.
                rng = random.Random(f"dlrm-856/{index}")
                dim = rng.choice(_ADS_DIMS)
                (pooling_factor,) = rng.choices(_POOLING_FACTORS, _ADS_POOLING_WEIGHTS)
                tables.append(Table(f"table_{index}", rows, dim, (float(pooling_factor),)))
        elif record["workload"] == name:
            rows, dim = int(record["rows"]), int(record["dim"])
            pooling_factors = tuple(map(float, record["pooling_factors"].split("|")))
            for _ in range(int(record["tables"])):
                table = Table(f"table_{len(tables)}", rows, dim, pooling_factors, record["dtype"])
                tables.append(table)
    return tuple(tables)


@cache
def _read(file: str) -> tuple[str, tuple[Mapping[str, str], ...]]:
    """Return the source and the records of a packaged data file."""
    text = resources.files("planners.embedding").joinpath("data", file).read_text("utf-8")
    comment, *lines = text.splitlines()
    return comment.removeprefix("# source: "), tuple(csv.DictReader(lines))


def assigned(name: str) -> str:
    """Return, as text, the attributes that no source has and that are assigned here, or ''."""
    return _ASSIGNED.get(name, "")


def load_tables(spec: WorkloadSpec) -> tuple[Table, ...]:
    """Return the tables of a workload: one of `list_workloads`, or a path to .csv or .parquet.

    A sample keeps the original order of its tables. Rows are not scaled: see `sized_tables`. Raises
    UsageError for an unknown workload, a wrong parameter, or a bad file.
    """
    asked = _parameters(spec)
    rng = random.Random(asked.seed or 0)
    if isinstance(asked, MixtureParameters):
        drawn = rng.randint(8, 30)

        def exponent() -> float:
            return rng.uniform(0, 8.2 if rng.random() < 0.1 else 7.3)

        return _generated(rng, asked.tables or drawn, exponent, _MIXTURE_DIMS)
    if spec.name == _SYNTHETIC.name:
        return _generated(rng, asked.tables or 100, lambda: rng.uniform(3, 8), _SYNTHETIC_DIMS)
    tables = read_tables(spec.name) if is_table_file(spec.name) else _published(spec.name)
    if asked.tables is None:
        if asked.seed is None:
            return tables
        raise UsageError(
            f"Workload '{spec}': 'seed' must come with 'tables', the number of tables to sample."
        )
    if asked.tables > len(tables):
        raise UsageError(
            f"Parameter 'tables' of workload '{spec}' must be a whole number from 1 to "
            f"{len(tables)}, the tables that it has, not '{asked.tables}'."
        )
    chosen = rng.sample(range(len(tables)), asked.tables)
    return tuple(tables[index] for index in sorted(chosen))


def _parameters(spec: WorkloadSpec) -> TableParameters | MixtureParameters:
    """Return a workload's parameters; raises UsageError for an unknown workload or parameter."""
    if spec.name == _MIXTURE.name:
        return read_parameters(spec, MixtureParameters)
    named = (*_MODELS, _SYNTHETIC.name)
    if not is_table_file(spec.name) and spec.name not in named:
        files = (f"FILE{suffix}" for suffix in (*SUFFIXES, ".json", ".json.gz"))
        raise unknown("workload", spec.name, (*named, _MIXTURE.name, *files))
    return read_parameters(spec, TableParameters)


def _generated(
    rng: random.Random, tables: int, exponent: Callable[[], float], dims: tuple[int, ...]
) -> tuple[Table, ...]:
    """Draw tables in order: rows (10 ** exponent()), then dimension, then pooling factor.

    With the same seed, a larger number only appends tables.
    """
    return tuple(
        Table(
            name=f"table_{index}",
            rows=round(10 ** exponent()),
            dim=rng.choice(dims),
            pooling_factors=(float(rng.choice(_POOLING_FACTORS)),),
        )
        for index in range(tables)
    )


def sizes_of(spec: WorkloadSpec) -> TableParameters:
    """Return the parameters that scale a workload's rows; raises as `load_tables` does."""
    asked = _parameters(spec)
    return asked if isinstance(asked, TableParameters) else TableParameters()


def sized_tables(spec: WorkloadSpec, usable_hbm: int) -> tuple[Table, ...]:
    """Return a workload's tables, scaled as its parameters ask, to `usable_hbm` bytes in all."""
    tables, sizes = load_tables(spec), sizes_of(spec)
    if sizes.weights == "cpu":
        return scaled(tables, (sizes.mib or 12) * 2**20)
    return scaled(tables, int(MEMORY[sizes.memory] * usable_hbm)) if sizes.memory else tables


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


def label(spec: WorkloadSpec) -> WorkloadSpec:
    """Return the workload under its name in results: for a file, base name and content hash.

    Raises UsageError for an unusable workload or file, before any process is started.
    """
    if is_captured_file(spec.name):
        _captured(spec)
        return spec.of_file(read_file(spec.name))
    load_tables(spec)
    return spec.of_file(read_bytes(spec.name)) if is_table_file(spec.name) else spec


def brings(spec: WorkloadSpec) -> Topology | None:
    """Return the machines of a captured file, else None; raises UsageError for a bad file."""
    return _captured(spec).topology.machines() if is_captured_file(spec.name) else None


def _captured(spec: WorkloadSpec) -> "CapturedProblem":
    from planners.embedding.capture.file import read_problem

    if spec.parameters:
        raise UsageError(f"A captured workload takes no parameters; write '{spec.name}' alone.")
    return read_problem(spec.name)
