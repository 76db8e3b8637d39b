"""The memory of one rank: counted on TorchRec's sharded module, and computed from its shards."""

import random
from functools import cache
from pathlib import Path

import pytest
import torch.distributed as dist
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.planners import to_sharding_plan
from torchrec.distributed.planner.types import (
    KernelConfig,
    ParameterConstraints,
    ShardingOption,
    Topology,
    TopologyFactory,
    TrainerConfig,
)

from harness.execution.child import run, start_job
from harness.execution.server import start_server
from harness.execution.worker import Failed, Result, Stage
from planners.embedding.memory import rank_bytes
from planners.embedding.memory.rank_bytes import measure_rank, terms_of
from planners.embedding.memory.rank_model import RankJob, RankModel, inputs_of
from planners.embedding.memory.shard_bytes import (
    GRADIENTS,
    INPUTS,
    OF_RANK,
    OPTIMIZER,
    OPTIMIZERS,
    OUTPUTS,
    PEAK,
    WEIGHTS,
    Terms,
    derived_terms,
)
from planners.embedding.tables.files import Table
from planners.embedding.tables.torchrec_objects import embedding_model

KINDS = ("table_wise", "row_wise", "column_wise", "table_row_wise", "grid_shard")
TABLES = (Table("a", 600, 32, (3.0,)), Table("b", 90, 64, (1.0, 2.0)), Table("c", 7, 32, (0.5,)))


@pytest.fixture(autouse=True, scope="module")
def _ranks_start_at_once() -> None:
    start_server((rank_bytes.__name__,))


@cache
def on(device: str, ranks: int, of_host: int) -> Topology:
    return TopologyFactory.create_topology(
        trainer_config=TrainerConfig(world_size=ranks, local_world_size=of_host),
        kernel_config=KernelConfig(compute_device=device),
    )


def jobs(
    kinds: tuple[str, ...],
    optimizer: str,
    ranks: int = 2,
    of_host: int = 2,
    tables: tuple[Table, ...] = TABLES,
    batch: int = 64,
) -> tuple[list[RankJob], list[ShardingOption]]:
    """Return a job for each rank of a plan with these sharding types, and the plan's options."""
    constraints = {
        table.name: ParameterConstraints(
            sharding_types=[kind],
            compute_kernels=["dense" if kind == "data_parallel" else "fused"],
            pooling_factors=list(table.pooling_factors),
            min_partition=table.dim // 2,
        )
        for table, kind in zip(tables, kinds * len(tables), strict=False)
    }
    planner = EmbeddingShardingPlanner(
        topology=on("cuda", ranks, of_host), constraints=constraints, batch_size=batch, stats=[]
    )
    planner.plan(embedding_model(tables), [EmbeddingBagCollectionSharder()])
    options = list(planner._best_plan or ())
    plan = to_sharding_plan(options, on("cpu", ranks, of_host))
    names = {kind: kind for kind in kinds}
    made = [
        RankJob(tables, plan, rank, ranks, of_host, batch, optimizer, "cpu", names)
        for rank in range(ranks)
    ]
    return made, options


def measured(job: RankJob) -> Terms:
    found = run(measure_rank, job, first=Stage("measuring", 60.0))
    assert not isinstance(found, Failed), found.reason
    return found


@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [
        ("column_wise", "rowwise_adagrad"),
        ("data_parallel", "adam"),
    ],
)
def test_weights_and_optimizer_state_have_their_exact_bytes(kind: str, optimizer: str) -> None:
    made, options = jobs((kind,), optimizer)
    found = measured(made[0])[kind]
    shards = [shard.size for option in options for shard in option.shards if shard.rank == 0]
    assert found[WEIGHTS] == sum(4 * rows * columns for rows, columns in shards) > 0
    assert found[OPTIMIZER] == sum(OPTIMIZERS[optimizer].state_bytes(*size) for size in shards)


def random_tables(rng: random.Random) -> tuple[Table, ...]:
    return tuple(
        Table(
            str(number),
            int(10 ** rng.uniform(1, 4)),
            rng.choice((16, 32, 64)),
            tuple(float(rng.choice((1, 2, 20))) for _ in range(rng.randint(1, 2))),
        )
        for number in range(rng.randint(3, 8))
    )


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 60))]
)
def test_computed_bytes_are_the_counted_ones(seed: int) -> None:
    rng = random.Random(seed)
    ranks, of_host = rng.choice(((2, 2), (4, 2), (4, 4), (8, 4)))
    kinds = tuple(rng.choices(KINDS, k=rng.randint(1, 8)))
    optimizer = rng.choice(("sgd", "rowwise_adagrad", "adagrad"))
    made, options = jobs(kinds, optimizer, ranks, of_host, random_tables(rng), 256)
    job = rng.choice(made)
    found, derived = measured(job), derived_terms(options, on("cuda", ranks, of_host), optimizer)
    for kind, terms in derived[job.rank].items():
        for term, size in terms.items():
            # Indices of a row-wise shard are random; a peak leaves out what is a few kilobytes.
            tolerance = {PEAK: 0.04, INPUTS: 0.2}.get(term, 0.0)
            assert found[kind][term] == pytest.approx(size, rel=tolerance, abs=0), (kind, term)


def gloo_rank(job: RankJob, store: str, *_: object) -> Terms:
    """Return the terms of a rank that exchanges tensors with other processes."""
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=job.rank, world_size=job.world_size
    )
    model = RankModel(job)
    inputs = inputs_of(job)
    model.step(inputs)
    return terms_of(model, inputs)


def test_one_rank_alone_has_the_tensors_of_a_rank_among_processes(tmp_path: Path) -> None:
    made, _ = jobs(("table_wise", "row_wise", "column_wise"), "rowwise_adagrad")
    children = [start_job(gloo_rank, job, str(tmp_path / "store"), memory_gib=8.0) for job in made]
    with children[0] as first, children[1] as second:
        for child, job in zip((first, second), made, strict=True):
            message = None
            while message is None:
                message = child.receive(10.0)
            assert isinstance(message, Result), message
            alone = measured(job)
            assert alone.pop(OF_RANK)[PEAK] > 0
            assert message.value == alone
    assert {term for of_kind in alone.values() for term in of_kind} >= {OUTPUTS, GRADIENTS}
