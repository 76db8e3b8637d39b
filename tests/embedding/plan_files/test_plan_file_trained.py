"""What is loaded from a plan file trains as the unsharded model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def shards_of(*boxes):
    """Return shards as a document has them, of (rows, columns, row, column, rank)."""
    perf = dict.fromkeys(("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms"), 0.1)
    return [
        {
            "size": [rows, columns],
            "offset": [row, column],
            "rank": rank,
            "storage_bytes": {"hbm": 0, "ddr": 4 * rows * columns},
            "perf_ms": perf,
        }
        for rows, columns, row, column, rank in boxes
    ]


ON_ONE_HOST = (
    ("user", 601, 16, "row_wise", [(301, 16, 0, 0, 0), (300, 16, 301, 0, 1)]),
    ("item", 90, 32, "column_wise", [(90, 8, 0, 8 * at, at in (0, 3)) for at in range(4)]),
    ("shop", 7, 8, "table_row_wise", [(4, 8, 0, 0, 0), (3, 8, 4, 0, 1)]),
    ("city", 50, 16, "table_column_wise", [(50, 8, 0, 0, 1), (50, 8, 0, 8, 1)]),
)

ON_TWO_HOSTS = (
    ("user", 601, 16, "grid_shard", [(601, 8, 0, 0, 1), (601, 8, 0, 8, 0)]),
    ("item", 90, 32, "data_parallel", [(90, 32, 0, 0, 0), (90, 32, 0, 0, 1)]),
    ("shop", 7, 8, "table_wise", [(7, 8, 0, 0, 1)]),
    ("city", 50, 16, "column_wise", [(50, 16, 0, 0, 0)]),
)


@pytest.mark.long
@pytest.mark.parametrize(("tables", "ranks_of_a_host"), [(ON_ONE_HOST, 2), (ON_TWO_HOSTS, 1)])
def test_what_the_loader_takes_trains_as_the_unsharded_model(tmp_path, tables, ranks_of_a_host):
    said = {
        "format": "shardbench-plan",
        "version": 1,
        "quality": {},
        "world_size": 2,
        "local_world_size": ranks_of_a_host,
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
                "shards": shards_of(*[(*box[:4], int(box[4])) for box in boxes]),
            }
            for name, rows, dim, sharding_type, boxes in tables
        ],
    }
    (tmp_path / "plan.json").write_text(json.dumps(said))
    trained = subprocess.run(
        [sys.executable, Path(__file__).parent / "train_plan_files.py", tmp_path / "plan.json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert trained.returncode == 0, trained.stderr[-2000:]
    assert trained.stdout.count("outputs equal: yes") == 2
