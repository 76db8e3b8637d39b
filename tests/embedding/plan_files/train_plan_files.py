"""Train the model of docs/examples/train_with_plan.py with a plan file, in two gloo ranks.

    python tests/embedding/plan_files/train_plan_files.py PLAN

Outputs must be those of the unsharded model, before and after a step.
"""

import os
import sys
import tempfile
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn import functional
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import Topology
from torchrec.distributed.types import ShardingType

from planners.embedding.plan_files.document import PlanDocument
from planners.embedding.plan_files.loader import JsonPlanLoader, plan_constraints

sys.path.insert(0, str(Path(__file__).parents[3] / "docs" / "examples"))
import train_with_plan as example


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
