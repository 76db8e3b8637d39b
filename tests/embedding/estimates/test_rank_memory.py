"""The memory of a rank: counted on TorchRec's sharded module, computed, and in an estimator."""

import random
from functools import cache
from pathlib import Path

import built_problem
import pytest
import torch.distributed as dist
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import to_sharding_plan
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.types import (
    KernelConfig,
    ParameterConstraints,
    ShardEstimator,
    ShardingOption,
    Topology,
    TopologyFactory,
    TrainerConfig,
)

from harness.execution.child import run, start_job
from harness.execution.server import start_server
from harness.execution.worker import Failed, Result, Stage
from planners.embedding.estimates.estimator import torchrec_peaks
from planners.embedding.estimates.memory import (
    GRADIENTS,
    INPUTS,
    OF_RANK,
    OPTIMIZERS,
    OUTPUTS,
    PEAK,
    StepStorageEstimator,
    Terms,
    derived_terms,
)
from planners.embedding.measuring import rank as rank_module
from planners.embedding.measuring.rank import (
    RankJob,
    inputs_of,
    measure_rank,
    sharded_model,
    step,
    terms_of,
)
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.tables.files import Table
from planners.embedding.tables.torchrec_objects import embedding_model

KINDS = ("table_wise", "row_wise", "column_wise", "table_row_wise", "grid_shard")
TABLES = (Table("a", 600, 32, (3.0,)), Table("b", 90, 64, (1.0, 2.0)), Table("c", 7, 32, (0.5,)))
PROBLEM = built_problem.problem("synthetic[tables=4,seed=3,memory=roomy]", gpus=16)


@pytest.fixture(autouse=True, scope="module")
def _ranks_start_at_once() -> None:
    start_server((rank_module.__name__,))


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
            compute_kernels=["fused"],
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
    made = [
        RankJob(tables, plan, rank, ranks, of_host, batch, optimizer, "cpu")
        for rank in range(ranks)
    ]
    return made, options


def measured(job: RankJob) -> Terms:
    terms = run(measure_rank, job, first=Stage("measuring", 60.0))
    assert not isinstance(terms, Failed), terms.reason
    return terms


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
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 24))]
)
def test_computed_bytes_are_the_counted_ones(seed: int) -> None:
    """This goes for random tables, sharding types, ranks and optimizers."""
    rng = random.Random(seed)
    ranks, of_host = rng.choice(((2, 2), (4, 2), (4, 4), (8, 4)))
    kinds = tuple(rng.choices(KINDS, k=rng.randint(1, 8)))
    optimizer = rng.choice(tuple(OPTIMIZERS)[:3])  # fbgemm has no Adam on a CPU
    made, options = jobs(kinds, optimizer, ranks, of_host, random_tables(rng), 256)
    job = rng.choice(made)
    counted, derived = measured(job), derived_terms(options, on("cuda", ranks, of_host), optimizer)
    for group, terms in derived[job.rank].items():
        for term, size in terms.items():
            # Indices of a row-wise shard are random; a peak leaves out what is a few kilobytes.
            tolerance = {PEAK: 0.04, INPUTS: 0.2}.get(term, 0.0)
            assert counted[group][term] == pytest.approx(size, rel=tolerance, abs=0), (group, term)


def gloo_rank(job: RankJob, store: str, *_: object) -> Terms:
    """Return the terms of a rank that exchanges tensors with other processes."""
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=job.rank, world_size=job.world_size
    )
    model = sharded_model(job)
    inputs = inputs_of(job)
    step(model, inputs)
    return terms_of(model, inputs)


def test_a_rank_alone_has_the_tensors_of_a_rank_among_processes(tmp_path: Path) -> None:
    """The other ranks exchange tensors by gloo."""
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
    assert {term for of_group in alone.values() for term in of_group} >= {OUTPUTS, GRADIENTS}


def options_by_key(
    estimator: type[ShardEstimator], enumerator: type[EmbeddingEnumerator] = EmbeddingEnumerator
) -> dict[tuple[str, str, str], ShardingOption]:
    estimators = [
        made(topology=PROBLEM.topology, constraints=PROBLEM.constraints)
        for made in (EmbeddingPerfEstimator, estimator)
    ]
    made = PROBLEM.enumerator(enumerator, estimators).enumerate(PROBLEM.module, PROBLEM.sharders)
    return {(option.fqn, option.sharding_type, option.compute_kernel): option for option in made}


@pytest.mark.parametrize("enumerator", [EmbeddingEnumerator, DistinctShardEnumerator])
def test_the_estimator_gives_torchrecs_storage_or_more(
    enumerator: type[EmbeddingEnumerator],
) -> None:
    """It raises the HBM of kernel `fused` alone."""
    plain = options_by_key(EmbeddingStorageEstimator)
    whole = options_by_key(StepStorageEstimator, enumerator)
    raised = set()
    for key, option in plain.items():
        for shard, other in zip(option.shards, whole[key].shards, strict=True):
            assert other.storage.ddr == shard.storage.ddr
            assert other.storage.hbm >= shard.storage.hbm
            if other.storage.hbm > shard.storage.hbm:
                raised.add(key[1:])
    assert raised == {(kind, kernel) for _, kind, kernel in plain if kernel == "fused"}


def test_torchrecs_peak_is_its_estimate_with_an_optimizer() -> None:
    """Adam adds two numbers for each weight."""
    plain = options_by_key(EmbeddingStorageEstimator)
    plan = [option for (_, _, kernel), option in plain.items() if kernel == "fused"]
    for number, option in enumerate(plan):
        for shard in option.shards:
            shard.rank = number % 16
    settings = PROBLEM.constraints, PROBLEM.sharders
    sgd, adam = (
        sum(torchrec_peaks(plan, PROBLEM.topology, name, *settings)) for name in ("sgd", "adam")
    )
    shards = [shard for option in plan for shard in option.shards]
    assert sgd == sum(shard.storage.hbm for shard in shards)
    state = sum(2 * 4 * shard.size[0] * shard.size[1] for shard in shards)
    assert adam - sgd == state
