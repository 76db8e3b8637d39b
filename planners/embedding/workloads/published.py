"""The tables of published models, read from packaged files with their sources."""

import csv
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from itertools import count

from harness.contract import Workload
from planners.embedding.tables.files import Table

_Record = Mapping[str, str]

_ADS_DIMS = (32, 64, 128, 256)
# The weights, in percent, have a mean of 15.82 indices per sample. The dataset's own mean is 15.81:
# 887,017,990 indices in a batch of 65,536 over 856 tables (its locality_stats.txt).
POOLING_FACTORS = (1, 2, 5, 10, 20, 50, 100)
_ADS_POOLING_WEIGHTS = (27, 15, 15, 16, 12, 9, 6)


def _ads(records: tuple[_Record, ...]) -> Iterator[Table]:
    for record in records:
        index, rows = record["table_index"], int(record["rows_max_index_plus_1"])
        if rows == 1:  # in this list, a table that no sample looks up
            continue
        # Each table has its own generator, so its values do not depend on the sample.
        rng = random.Random(f"dlrm-856/{index}")
        dim = rng.choice(_ADS_DIMS)
        (pooling_factor,) = rng.choices(POOLING_FACTORS, _ADS_POOLING_WEIGHTS)
        yield Table(f"table_{index}", rows, dim, (float(pooling_factor),))


def _merlin(records: tuple[_Record, ...], model: str) -> Iterator[Table]:
    index = count()
    for kind in records:
        if kind["model"] == model:
            pooling_factors = tuple(float(part) for part in kind["nnz_per_feature"].split("|"))
            for _ in range(int(kind["num_tables"])):
                name = f"table_{next(index)}"
                yield Table(name, int(kind["rows"]), int(kind["dim"]), pooling_factors)


def _criteo(records: tuple[_Record, ...], workload: str) -> Iterator[Table]:
    for record in records:
        if record["workload"] == workload:
            yield Table(
                f"table_{record['table_index']}",
                int(record["rows"]),
                int(record["dim"]),
                (float(record["pooling_factor"]),),
                record["dtype"],
            )


@cache
def _read(file: str) -> tuple[str, tuple[_Record, ...]]:
    """Return the source and the records of a packaged data file."""
    text = resources.files("planners.embedding").joinpath("data", file).read_text("utf-8")
    comment, *lines = text.splitlines()
    return comment.removeprefix("# source: "), tuple(csv.DictReader(lines))


@dataclass(frozen=True, slots=True)
class PublishedTables:
    """A workload from a packaged file; `assigned` names the attributes that the file lacks."""

    file: str
    about: str
    build: Callable[[tuple[_Record, ...]], Iterator[Table]]
    assigned: str = ""

    def tables(self) -> tuple[Table, ...]:
        """Build the tables, in the order of the data file."""
        return tuple(self.build(_read(self.file)[1]))

    def described(self, name: str) -> Workload:
        """Return the workload's entry, under `name`, in the list of workloads."""
        tables = self.tables()
        gib = sum(table.bytes for table in tables) / 2**30
        text = f"{self.about}: {len(tables)} tables, {gib:,.1f} GiB"
        if self.assigned:
            text += f"; assigned, not published: {self.assigned}"
        return Workload(name, text, _read(self.file)[0])


PUBLISHED = {
    "dlrm-856": PublishedTables(
        "dlrm_datasets_2021_t856_rows.csv",
        "the tables of Meta's 856-table ads dataset of 2021 that are not empty",
        _ads,
        assigned="dimension, pooling factor",
    ),
    **{
        f"merlin-{model}": PublishedTables(
            "merlin_synthetic_v3.csv",
            f"Merlin's synthetic ads model '{model}', with tables that features share",
            partial(_merlin, model=model),
        )
        for model in ("tiny", "small", "medium", "large", "jumbo", "colossal")
    },
    "dlrm-dcnv2": PublishedTables(
        "criteo_mlperf_tables.csv",
        "MLPerf's DLRM-DCNv2 on multi-hot Criteo Terabyte",
        partial(_criteo, workload="mlperf_dlrm_dcnv2"),
    ),
    "criteo-kaggle": PublishedTables(
        "criteo_mlperf_tables.csv",
        "DLRM on one-hot Criteo Kaggle",
        partial(_criteo, workload="criteo_kaggle"),
    ),
}
