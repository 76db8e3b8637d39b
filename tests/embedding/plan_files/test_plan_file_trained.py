"""A model sharded by a plan file trains like the unsharded model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from golden_plan import document_of

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
    said = document_of(tables, 2, ranks_of_a_host)
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
