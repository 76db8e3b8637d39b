"""Train docs/examples/train_with_plan.py with a plan file: its tables, two gloo ranks.

    python tests/embedding/train_plan_files.py PLAN

Outputs must be those of the unsharded model, before and after a step.
"""

import os
import sys
import tempfile
from pathlib import Path

import msgspec
import torch.multiprocessing as mp
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import Topology
from torchrec.distributed.types import ShardingType

from planners.embedding.plan_document import PlanDocument
from planners.embedding.plan_file import JsonPlanLoader, plan_constraints

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "examples"))
import train_with_plan as example


class AnySharder(example.Sharder):
    def sharding_types(self, compute_device_type):
        return [each.value for each in ShardingType]


def load(model, path):
    said = msgspec.json.decode(Path(path).read_bytes(), type=PlanDocument)
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


def train(rank, meeting_point, path):
    said = msgspec.json.decode(Path(path).read_bytes(), type=PlanDocument)
    os.environ["LOCAL_WORLD_SIZE"] = str(said.local_world_size)
    example.TABLES = {table.name: (table.rows, table.dim) for table in said.tables}
    example.planned = load
    example.described = lambda plan: sorted(plan.plan["embeddings"])
    example.train(rank, meeting_point, path)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        meeting_point = (Path(folder) / "meeting-point").as_uri()
        mp.spawn(train, (meeting_point, sys.argv[1]), nprocs=example.RANKS)
