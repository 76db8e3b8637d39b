"""The plan file written by the first release, and documents of small plans."""

import json
from pathlib import Path

GOLDEN = Path(__file__).parent / "data" / "plan_version_1.json"  # as the first release wrote it
SAID = json.loads(GOLDEN.read_text())


def document_of(tables, world_size, local_world_size, **fields):
    """Return a plan document; a table is its name, rows, dim, sharding type and boxes of shards.

    Boxes are (rows, columns, first row, first column, rank). `fields` are changed in each table.
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
                **fields,
            }
            for name, rows, dim, sharding_type, boxes in tables
        ],
    }
