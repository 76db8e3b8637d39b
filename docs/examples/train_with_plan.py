"""Train with plans of shardbench's planner and of TorchRec's, and compare the losses.

    python docs/examples/train_with_plan.py

A small model, four embedding tables and a dense over-arch, is planned by TorchRec's planner and by
shardbench's in both modes, sharded with each plan by TorchRec's DistributedModelParallel, and
trained from the same weights on the same batches: two processes, gloo and CPUs. The same plan must
give the same losses to the last bit, and the best plan the same but for rounding.
"""

import tempfile
import warnings
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.optim import _apply_optimizer_in_backward as apply_optimizer_in_backward
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.distributed.types import ShardingPlan
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from shardbench import Planner

RANKS = 2
STEPS = 10
SAMPLES = 16  # a rank and step
DENSE_FEATURES = 8
MOST_LOOKUPS = 5  # of a sample in a table; the fewest are none
LEARNING_RATE = 0.1

TABLES = {"user": (6000, 64), "item": (8000, 256), "shop": (400, 32), "city": (100, 16)}
"""Rows and dimension of each table."""

PLANNERS = {
    "TorchRec's planner": EmbeddingShardingPlanner,
    "same-plan": Planner,
    "best-plan": partial(Planner, mode="best-plan"),
}


Batch = tuple[torch.Tensor, torch.Tensor, KeyedJaggedTensor]


class Model(nn.Module):
    """Scores samples by their dense features and the pooled embeddings of their sparse ones."""

    def __init__(self) -> None:
        super().__init__()
        tables = [
            EmbeddingBagConfig(
                name=name, num_embeddings=rows, embedding_dim=dim, feature_names=[name]
            )
            for name, (rows, dim) in TABLES.items()
        ]
        self.embeddings = EmbeddingBagCollection(tables=tables)
        width = DENSE_FEATURES + sum(dim for _, dim in TABLES.values())
        self.over = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        """Return a score for each sample, shape (B, 1), from dense features of shape (B, D)."""
        pooled = self.embeddings(sparse)
        return self.over(torch.cat([dense, *(pooled[name] for name in TABLES)], dim=1))


def random_batch() -> Batch:
    """Draw a batch of samples: features (B, D), labels (B, 1), and the rows that they look up."""
    lengths = torch.randint(MOST_LOOKUPS + 1, (len(TABLES), SAMPLES))
    looked_up = [
        torch.randint(rows, (int(lengths_of_table.sum()),))
        for lengths_of_table, (rows, _) in zip(lengths, TABLES.values(), strict=True)
    ]
    sparse = KeyedJaggedTensor.from_lengths_sync(
        keys=list(TABLES), values=torch.cat(looked_up), lengths=lengths.flatten().int()
    )
    return torch.randn(SAMPLES, DENSE_FEATURES), torch.rand(SAMPLES, 1), sparse


class Sharder(EmbeddingBagCollectionSharder):
    """Offers the model-parallel sharding types that one host can run with gloo.

    TorchRec's own sharder offers the row-wise ones on GPUs alone, though they run on CPUs too.
    """

    def sharding_types(self, compute_device_type: str) -> list[str]:  # noqa: ARG002 - torchrec's
        """Return the types that the planner may choose from."""
        return ["table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise"]


def plan_with(planner_type: type[EmbeddingShardingPlanner], model: Model) -> ShardingPlan:
    """Plan the model on rank 0 and return the plan on every rank."""
    planner = planner_type(
        topology=Topology(
            world_size=RANKS, local_world_size=RANKS, compute_device="cpu", ddr_cap=2**30
        ),
        batch_size=SAMPLES,
        # A planner would not cut so small a table by rows; the example shows it all the same.
        constraints={"user": ParameterConstraints(sharding_types=["row_wise"])},
        # TorchRec's default, heuristical reservation warns that it is deprecated.
        storage_reservation=FixedPercentageStorageReservation(percentage=0.15),
        stats=[],
    )
    return planner.collective_plan(model, [Sharder()], dist.GroupMember.WORLD)


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


def train(start: Model, plan: ShardingPlan, batches: list[Batch]) -> list[float]:
    """Train the model from the weights of `start` with a plan; return this rank's losses."""
    parallel, optimizer = sharded(Model(), plan)
    copy_weights(start, parallel)
    losses = []
    for dense, labels, sparse in batches:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(parallel(dense, sparse), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def run(rank: int, meeting_point: str) -> None:
    """Plan, train and compare, as one of the ranks."""
    warnings.simplefilter("ignore", FutureWarning)  # of torch and torchrec about each other
    dist.init_process_group("gloo", init_method=meeting_point, rank=rank, world_size=RANKS)
    torch.manual_seed(0)  # the same weights on every rank
    start = Model()
    torch.manual_seed(1 + rank)  # and batches of its own
    batches = [random_batch() for _ in range(STEPS)]
    losses = {}
    for name, planner_type in PLANNERS.items():
        plan = plan_with(planner_type, start)
        losses[name] = train(start, plan, batches)
        if rank == 0:
            print(f"{name}: loss {losses[name][0]:.4f} to {losses[name][-1]:.4f}")
            print(plan, flush=True)
    upstream = losses["TorchRec's planner"]
    assert losses["same-plan"] == upstream
    torch.testing.assert_close(losses["best-plan"], upstream)
    dist.barrier()  # equal on every rank
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, ((Path(folder) / "meeting-point").as_uri(),), nprocs=RANKS)
