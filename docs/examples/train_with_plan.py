"""Train one step with a plan: two processes, gloo and CPUs, compared with the unsharded model.

    python docs/examples/train_with_plan.py

A small model, four embedding tables and a dense over-arch, is planned by shardbench's planner,
sharded with that plan by TorchRec's DistributedModelParallel, and trained for one step, each rank
on its half of a batch. Its outputs before and after the step must be those of the same model
unsharded and trained on the whole batch.
"""

import argparse
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.optim import _apply_optimizer_in_backward as apply_optimizer_in_backward
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import (
    HardwareConfig,
    KernelConfig,
    ParameterConstraints,
    Topology,
    TopologyFactory,
    TrainerConfig,
)
from torchrec.distributed.types import ShardingPlan, ShardingType
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from shardbench import Planner

RANKS = 2
SAMPLES = 16  # a rank and step
DENSE_FEATURES = 8
MOST_LOOKUPS = 5  # of a sample in a table; the fewest are none
LEARNING_RATE = 0.1
SECONDS = 180  # it takes 10, and a minute more where the planner is not compiled yet

TABLES = {"user": (6000, 64), "item": (8000, 256), "shop": (400, 32), "city": (100, 16)}
"""Rows and dimension of each table."""


class Model(nn.Module):
    """Scores samples by their dense features and the pooled embeddings of their sparse ones."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = EmbeddingBagCollection(
            tables=[
                EmbeddingBagConfig(
                    name=name, num_embeddings=rows, embedding_dim=dim, feature_names=[name]
                )
                for name, (rows, dim) in TABLES.items()
            ]
        )
        width = DENSE_FEATURES + sum(dim for _, dim in TABLES.values())
        self.over = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        """Return a score for each sample, shape (B, 1), from dense features of shape (B, D)."""
        pooled = self.embeddings(sparse)
        return self.over(torch.cat([dense, *(pooled[name] for name in TABLES)], dim=1))


class Sharder(EmbeddingBagCollectionSharder):
    """Offers the model-parallel sharding types that one host can run with gloo.

    TorchRec's own sharder offers the row-wise ones on GPUs alone, though they run on CPUs too.
    """

    def sharding_types(self, compute_device_type: str) -> list[str]:  # noqa: ARG002 - torchrec's
        """Return the types that the planner may choose from."""
        return [
            ShardingType.TABLE_WISE.value,
            ShardingType.COLUMN_WISE.value,
            ShardingType.ROW_WISE.value,
            ShardingType.TABLE_ROW_WISE.value,
            ShardingType.TABLE_COLUMN_WISE.value,
        ]


def topology() -> Topology:
    """Describe one host: capacities in bytes a rank, bandwidths in bytes per millisecond."""
    gib = 2**30
    return TopologyFactory.create_topology(
        TrainerConfig(world_size=RANKS, local_world_size=RANKS),
        HardwareConfig(
            ddr_cap_bytes=gib,
            ddr_mem_bw=20 * gib / 1000,
            intra_host_bw=5 * gib / 1000,
            inter_host_bw=gib / 1000,
        ),
        # TorchRec ignores the bandwidths unless it is told to use them.
        KernelConfig(compute_device="cpu", use_hardware_based_bandwidth=True),
    )


def planned(model: Model, mode: str) -> ShardingPlan:
    """Plan the model on rank 0 and return the plan on every rank."""
    planner = Planner(
        topology=topology(),
        batch_size=SAMPLES,
        # The planner would not cut so small a table by rows; the example shows it all the same.
        constraints={
            "user": ParameterConstraints(sharding_types=[ShardingType.ROW_WISE.value]),
        },
        # TorchRec's default, heuristical reservation warns that it is deprecated.
        storage_reservation=FixedPercentageStorageReservation(percentage=0.15),
        stats=[],
        mode=mode,
    )
    return planner.collective_plan(model, [Sharder()], dist.GroupMember.WORLD)


@dataclass(frozen=True)
class Batch:
    """Samples of one step: dense features (B, D), labels (B, 1), and the rows they look up."""

    dense: torch.Tensor
    labels: torch.Tensor
    lookups: dict[str, list[torch.Tensor]]  # of each table, the rows of each sample

    @classmethod
    def random(cls, samples: int) -> "Batch":
        """Draw a batch."""
        return cls(
            dense=torch.randn(samples, DENSE_FEATURES),
            labels=torch.rand(samples, 1),
            lookups={
                name: [
                    torch.randint(rows, (int(torch.randint(MOST_LOOKUPS + 1, ())),))
                    for _ in range(samples)
                ]
                for name, (rows, _) in TABLES.items()
            },
        )

    def part(self, rank: int) -> "Batch":
        """Return the samples of one rank."""
        mine = slice(rank * SAMPLES, (rank + 1) * SAMPLES)
        return Batch(
            self.dense[mine],
            self.labels[mine],
            {name: rows[mine] for name, rows in self.lookups.items()},
        )

    def sparse(self) -> KeyedJaggedTensor:
        """Return the lookups as TorchRec wants them, table by table and then sample by sample."""
        rows = [each for name in TABLES for each in self.lookups[name]]
        return KeyedJaggedTensor.from_lengths_sync(
            keys=list(TABLES),
            values=torch.cat(rows),
            lengths=torch.tensor([len(each) for each in rows], dtype=torch.int32),
        )


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    """Take one step on the mean squared error."""
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch.dense, batch.sparse()), batch.labels).backward()
    optimizer.step()


def sharded(model: Model, plan: ShardingPlan) -> tuple[nn.Module, CombinedOptimizer]:
    """Return the model as this rank has it, with new weights, and its optimizer.

    Embeddings are updated during the backward pass, by the optimizer that is fused with their
    kernel; the over-arch is replicated, and has an optimizer of the usual kind.
    """
    apply_optimizer_in_backward(
        torch.optim.SGD, model.embeddings.parameters(), {"lr": LEARNING_RATE}
    )
    parallel = DistributedModelParallel(
        model, device=torch.device("cpu"), plan=plan, sharders=[Sharder()]
    )
    dense = KeyedOptimizerWrapper(
        dict(in_backward_optimizer_filter(parallel.named_parameters())),
        lambda parameters: torch.optim.SGD(parameters, lr=LEARNING_RATE),
    )
    return parallel, CombinedOptimizer([parallel.fused_optimizer, dense])


@torch.no_grad()
def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Copy all weights of a model into its sharded form: of tables, the shards of this rank."""
    weights = source.state_dict()
    for name, weight in target.state_dict().items():
        if isinstance(weight, ShardedTensor):
            for shard in weight.local_shards():
                row, column = shard.metadata.shard_offsets
                rows, columns = shard.metadata.shard_sizes
                shard.tensor.copy_(weights[name][row : row + rows, column : column + columns])
        else:
            weight.copy_(weights[name])


def train(rank: int, meeting_point: str, mode: str) -> None:
    """Plan, shard, train and compare, as one of the ranks."""
    warnings.simplefilter("ignore", FutureWarning)  # of torch and torchrec about each other
    dist.init_process_group(
        "gloo",
        init_method=meeting_point,
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=SECONDS),
    )
    torch.manual_seed(0)  # the same model and the same batch on every rank
    whole, batch = Model(), Batch.random(RANKS * SAMPLES)
    whole_optimizer = torch.optim.SGD(whole.parameters(), lr=LEARNING_RATE)
    mine = batch.part(rank)

    model = Model()
    plan = planned(model, mode)
    parallel, optimizer = sharded(model, plan)
    copy_weights(whole, parallel)
    say(rank, *described(plan))

    def compare(when: str) -> None:
        expected = whole(batch.dense, batch.sparse())
        scores = parallel(mine.dense, mine.sparse())
        torch.testing.assert_close(scores, expected[rank * SAMPLES : (rank + 1) * SAMPLES])
        dist.barrier()  # equal on every rank
        error = nn.functional.mse_loss(expected, batch.labels).item()
        say(rank, f"{when} the step: mean squared error {error:.4f}, outputs equal: yes")

    compare("before")
    train_step(parallel, optimizer, mine)
    train_step(whole, whole_optimizer, batch)
    compare("after")
    dist.destroy_process_group()


def described(plan: ShardingPlan) -> Iterator[str]:
    """Yield a line for each table: how it is sharded, and which rank holds what of it."""
    for name, table in sorted(plan.plan["embeddings"].items()):
        shards = []
        for shard in table.sharding_spec.shards:
            (row, column), (rows, columns) = shard.shard_offsets, shard.shard_sizes
            shards.append(
                f"rank {shard.placement.rank()}: rows {row}-{row + rows - 1}, "
                f"columns {column}-{column + columns - 1}"
            )
        yield f"{name:5} {table.sharding_type:12} {'; '.join(shards)}"


def say(rank: int, *lines: str) -> None:
    """Print lines, once for all ranks."""
    if rank == 0:
        print(*lines, sep="\n", flush=True)


def main() -> None:
    """Run the ranks, and stop them where they take too long."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mode", choices=("same-plan", "best-plan"), default="same-plan")
    mode = parser.parse_args().mode
    deadline = time.monotonic() + SECONDS
    with tempfile.TemporaryDirectory() as folder:
        meeting_point = (Path(folder) / "meeting-point").as_uri()
        ranks = mp.spawn(train, (meeting_point, mode), nprocs=RANKS, join=False)
        try:
            while not ranks.join(timeout=1):
                if time.monotonic() > deadline:
                    raise SystemExit(f"Stopped after {SECONDS} seconds.")
        finally:
            for process in ranks.processes:
                process.kill()


if __name__ == "__main__":
    main()
