"""A model sharded by a plan file trains like the unsharded model.

As a script it trains the model of docs/examples/train_with_plan.py in two gloo ranks; outputs must
be those of the unsharded model, before and after a step:

    python tests/embedding/plan_files/test_plan_file_trained.py PLAN
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from golden_plan import document_of
from torch.nn import functional
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import Topology
from torchrec.distributed.types import ShardingType

from planners.embedding.plan_files.document import PlanDocument
from planners.embedding.plan_files.loader import JsonPlanLoader, plan_constraints

sys.path.insert(0, str(Path(__file__).parents[3] / "docs" / "examples"))
import train_with_plan as example

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
    """Plans with all sharding types give the unsharded model's outputs, before and after a step."""
    said = document_of(tables, 2, ranks_of_a_host)
    (tmp_path / "plan.json").write_text(json.dumps(said))
    trained = subprocess.run(
        [sys.executable, __file__, tmp_path / "plan.json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert trained.returncode == 0, trained.stderr[-2000:]
    assert trained.stdout.count("outputs equal: yes") == 2


class AnySharder(example.Sharder):
    def sharding_types(self, compute_device_type):
        return [each.value for each in ShardingType]


def load(model, path, said):
    topology = Topology(
        world_size=said.world_size,
        local_world_size=said.local_world_size,
        compute_device="cpu",
        ddr_cap=2**30,
    )
    planner = EmbeddingShardingPlanner(
        topology=topology,
        batch_size=example.SAMPLES,
        constraints=plan_constraints(path),
        storage_reservation=FixedPercentageStorageReservation(percentage=0.15),
        stats=[],
        plan_loader=JsonPlanLoader(path, model, topology=topology),
    )
    return planner.plan(model, [AnySharder()])


def step(model, optimizer, batches):
    optimizer.zero_grad()
    for dense, labels, sparse in batches:
        (functional.mse_loss(model(dense, sparse), labels) / len(batches)).backward()
    optimizer.step()


def train(rank, meeting_point, path):
    said = msgspec.json.decode(Path(path).read_bytes(), type=PlanDocument)
    os.environ["LOCAL_WORLD_SIZE"] = str(said.local_world_size)
    example.TABLES = {table.name: (table.rows, table.dim) for table in said.tables}
    dist.init_process_group("gloo", init_method=meeting_point, rank=rank, world_size=example.RANKS)
    torch.manual_seed(0)  # the same model and the same batches on every rank
    whole, batches = example.Model(), [example.random_batch() for _ in range(example.RANKS)]
    optimizer = torch.optim.SGD(whole.parameters(), lr=example.LEARNING_RATE)
    model = example.Model()
    parallel, parallel_optimizer = example.sharded(model, load(model, path, said))
    example.copy_weights(whole, parallel)
    dense, _, sparse = batches[rank]
    for steps in range(2):
        torch.testing.assert_close(parallel(dense, sparse), whole(dense, sparse))
        dist.barrier()  # equal on every rank
        if rank == 0:
            print(f"after {steps} steps: outputs equal: yes", flush=True)
        step(parallel, parallel_optimizer, [batches[rank]])
        step(whole, optimizer, batches)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        meeting_point = (Path(folder) / "meeting-point").as_uri()
        # Forked, the ranks have imported torchrec.
        mp.start_processes(
            train, (meeting_point, sys.argv[1]), nprocs=example.RANKS, start_method="fork"
        )
