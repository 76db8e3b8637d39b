"""The plan file written by the first release, and documents of small plans."""

import json
from pathlib import Path


def decisions(options):
    return {
        option.name: (
            option.sharding_type,
            option.compute_kernel,
            [(shard.size, shard.offset, shard.rank) for shard in option.shards],
        )
        for option in options
    }


def said_again(path, change):
    """Apply `change` to the document in a file."""
    said = json.loads(path.read_text())
    change(said)
    path.write_text(json.dumps(said))


GOLDEN = Path(__file__).parent / "data" / "plan_version_1.json"  # as the first release wrote it


def first(said, sharding_type, kernel="fused"):
    return next(
        table
        for table in said["tables"]
        if (table["sharding_type"], table["compute_kernel"]) == (sharding_type, kernel)
    )


def as_said(said):
    """Return a document's decisions by table, in the form that `decisions` returns."""
    return {
        table["name"]: (
            table["sharding_type"],
            table["compute_kernel"],
            [(shard["size"], shard["offset"], shard["rank"]) for shard in table["shards"]],
        )
        for table in said["tables"]
    }


SAID = json.loads(GOLDEN.read_text())


def document_of(tables, world_size, local_world_size):
    """Return a plan document; a table is its name, rows, dim, sharding type and boxes of shards.

    Boxes are (rows, columns, first row, first column, rank).
    """
    perf = dict.fromkeys(("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms"), 0.1)

    def shard(rows, columns, row, column, rank):
        return {
            "size": [rows, columns],
            "offset": [row, column],
            "rank": int(rank),
            "storage_bytes": {"hbm": 0, "ddr": 4 * rows * columns},
            "perf_ms": perf,
        }

    return {
        "format": "shardbench-plan",
        "version": 1,
        "quality": {},
        "world_size": world_size,
        "local_world_size": local_world_size,
        "tables": [
            {
                "name": name,
                "rows": rows,
                "dim": dim,
                "dtype": "fp32",
                "pooling_factors": [1.0],
                "sharding_type": sharding_type,
                "compute_kernel": "dense" if sharding_type == "data_parallel" else "fused",
                "cache_load_factor": None,
                "shards": [shard(*box) for box in boxes],
            }
            for name, rows, dim, sharding_type, boxes in tables
        ],
    }
