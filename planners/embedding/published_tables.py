"""Published workloads: table lists in packaged data files, and what is assigned to them."""

import csv
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources

from planners.embedding.tables import Table

_Record = Mapping[str, str]

_ADS_DIMS = (32, 64, 128, 256)
# The weights, in percent, have a mean of 15.82 indices per sample. The dataset's own mean is 15.81:
# 887,017,990 indices in a batch of 65,536 over 856 tables (its locality_stats.txt).
POOLING_FACTORS = (1, 2, 5, 10, 20, 50, 100)
_ADS_POOLING_WEIGHTS = (27, 15, 15, 16, 12, 9, 6)


def _ads(records: tuple[_Record, ...]) -> Iterator[Table]:
    for record in records:
        index, rows = record["table_index"], int(record["rows_max_index_plus_1"])
        if rows == 1:  # the list's mark for a table that no sample looks up
            continue
        # A generator of its own: a sampled table keeps what it was assigned.
        rng = random.Random(f"dlrm-856/{index}")
        dim = rng.choice(_ADS_DIMS)
        (pooling_factor,) = rng.choices(POOLING_FACTORS, _ADS_POOLING_WEIGHTS)
        yield Table(f"table_{index}", rows, dim, (float(pooling_factor),))


def _merlin(records: tuple[_Record, ...], model: str) -> Iterator[Table]:
    kinds = [
        record
        for record in records
        if record["model"] == model
        for _ in range(int(record["num_tables"]))
    ]
    for index, kind in enumerate(kinds):
        pooling_factors = tuple(float(part) for part in kind["nnz_per_feature"].split("|"))
        yield Table(f"table_{index}", int(kind["rows"]), int(kind["dim"]), pooling_factors)


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
    text = resources.files("planners.embedding").joinpath("data", file).read_text("utf-8")
    comment, *lines = text.splitlines()
    return comment.removeprefix("# source: "), tuple(csv.DictReader(lines))


@dataclass(frozen=True, slots=True)
class Published:
    """A workload whose tables, or part of their attributes, come from a packaged data file.

    `assigned` names the attributes that the file lacks and that are assigned here.
    """

    file: str
    about: str
    build: Callable[[tuple[_Record, ...]], Iterator[Table]]
    assigned: str = ""

    @property
    def source(self) -> str:
        """Where the figures were taken from."""
        return _read(self.file)[0]

    def tables(self) -> tuple[Table, ...]:
        """Build the tables, in the order of the data file."""
        return tuple(self.build(_read(self.file)[1]))


PUBLISHED = {
    "dlrm-856": Published(
        "dlrm_datasets_2021_t856_rows.csv",
        "the tables of Meta's 856-table ads dataset of 2021 that are not empty",
        _ads,
        assigned="dimension, pooling factor",
    ),
    **{
        f"merlin-{model}": Published(
            "merlin_synthetic_v3.csv",
            f"Merlin's synthetic ads model '{model}', with tables that features share",
            partial(_merlin, model=model),
        )
        for model in ("tiny", "small", "medium", "large", "jumbo", "colossal")
    },
    "dlrm-dcnv2": Published(
        "criteo_mlperf_tables.csv",
        "MLPerf's DLRM-DCNv2 on multi-hot Criteo Terabyte",
        partial(_criteo, workload="mlperf_dlrm_dcnv2"),
    ),
    "criteo-kaggle": Published(
        "criteo_mlperf_tables.csv",
        "DLRM on one-hot Criteo Kaggle",
        partial(_criteo, workload="criteo_kaggle"),
    ),
}
