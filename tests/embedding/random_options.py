"""Random options, proposals and devices; of few small numbers, so that ties are likely."""

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import torch
from torch import nn
from torchrec.distributed.planner.enumerators import get_partition_by_type
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner, SortBy
from torchrec.distributed.planner.types import (
    CustomTopologyData,
    Perf,
    Shard,
    ShardingOption,
    Storage,
    Topology,
)

from planners.embedding.same_plan.proposals import rules_of
from planners.embedding.same_plan.search import Partition
from planners.embedding.search.space import devices_of, search_space

MEGABYTE = 2**20

_MODULE = nn.Module()
_TENSOR = torch.empty(0, device="meta")
_ON_HOSTS = ("table_row_wise", "table_column_wise", "grid_shard")
_TYPES = ("row_wise", "data_parallel", "table_wise", "column_wise", *_ON_HOSTS)


@dataclass(frozen=True)
class Case:
    """Options of some tables, and the devices to place them on."""

    options: list[ShardingOption]
    topology: Topology

    def tables(self) -> dict[str, list[int]]:
        """Return the option numbers of each table."""
        tables: dict[str, list[int]] = {}
        for number, option in enumerate(self.options):
            tables.setdefault(option.fqn, []).append(number)
        return tables


def random_case(random: Random, unit: int = 1, most_tables: int = 6, towers: bool = True) -> Case:
    """Return a case with storage in multiples of `unit` bytes."""
    topology = _topology(random, unit)
    likely = random.sample(_TYPES, random.randint(1, 3))
    options = []
    for table in range(random.randint(1, most_tables)):
        tower = random.choice(["one", "other"]) if towers and random.random() < 0.4 else None
        path = random.choice(["", "left", "right"]) if tower is None else tower
        types = [random.choice(likely), random.choice(_TYPES)][: random.choice([1, 1, 2])]
        if tower:  # options on single devices cannot be placed together
            types = [random.choice([*_ON_HOSTS[:2], *_ON_HOSTS, "row_wise"])]
        for sharding_type in dict.fromkeys(types):
            for kernel in random.sample(["fused", "fused_uvm_caching"], random.randint(1, 2)):
                options.append(
                    ShardingOption(
                        name=f"table_{table}",
                        tensor=_TENSOR,
                        module=(path, _MODULE),
                        input_lengths=[1.0],
                        batch_size=1,
                        sharding_type=sharding_type,
                        partition_by=get_partition_by_type(sharding_type),
                        compute_kernel=kernel,
                        shards=_shards(random, sharding_type, topology, unit),
                        dependency=tower,
                        is_pooled=True,
                    )
                )
    return Case(options, topology)


def random_rows(random: Random, case: Case) -> np.ndarray:
    """Return proposals with shuffled tables; many differ in one table from their predecessor."""
    tables = list(case.tables().values())
    random.shuffle(tables)
    rows = [[random.choice(options) for options in tables]]
    for _ in range(random.randint(0, 5)):
        row = [*rows[-1]]
        changed = random.sample(range(len(tables)), random.choice([1, 1, len(tables)]))
        for table in changed:
            row[table] = random.choice(tables[table])
        rows.append(row)
    return np.array(rows)


def placements(seed: int) -> dict[str, list[Any]]:
    """Return the ratings of random proposals, None if not placed, and the best one's ranks."""
    random = Random(seed)
    case = random_case(random)
    space = search_space(case.options)
    by_perf = GreedyPerfPartitioner(random.choice(list(SortBy)))
    partition = Partition(space, devices_of(case.topology), rules_of(by_perf), exact=True)
    ratings = partition.place(random_rows(random, case)).tolist()
    return {
        "ratings": [None if rating != rating else rating for rating in ratings],
        "ranks": [] if partition.best is None else partition.best_ranks.tolist(),
    }


def _topology(random: Random, unit: int) -> Topology:
    local_ranks = random.randint(1, 3)
    hosts = random.randint(1, 4)
    spare = random.randint(0, local_ranks - 1)
    ranks = hosts * local_ranks + spare
    even = random.random() < 0.6
    plenty = random.choice([1, 1, 5])
    held = {}
    for kind, most in (("hbm_cap", 12), ("ddr_cap", 20), ("ssd_cap", 9)):
        amount = random.randint(1, most)
        held[kind] = [
            unit * plenty * (amount if even else random.randint(-1, most)) for _ in range(ranks)
        ]
    return Topology(
        world_size=ranks,
        local_world_size=local_ranks,
        pod_size=2 if hosts > 2 and random.random() < 0.2 else None,
        compute_device="cuda",
        custom_topology_data=CustomTopologyData(held, ranks),
        created_by_factory=True,  # avoids a warning
    )


def _shards(random: Random, sharding_type: str, topology: Topology, unit: int) -> list[Shard]:
    host = topology.intra_group_size
    count = {
        "row_wise": topology.world_size,
        "data_parallel": topology.world_size,
        "table_wise": 1,
        "column_wise": random.randint(1, 3),
        "table_row_wise": host,
        "table_column_wise": random.randint(1, 3),
        "grid_shard": host * random.choice([1, 2, 2, 3, 5]),
    }[sharding_type]
    if random.random() < 0.05:
        count += 1
    estimates = [_estimate(random, unit) for _ in range(random.randint(1, 2))]
    shards = []
    for index in range(count):
        storage, perf = estimates[-1] if index == count - 1 else estimates[0]
        shards.append(Shard([1, 1], [index, 0], storage, perf))
    return shards


def _estimate(random: Random, unit: int) -> tuple[Storage, Perf]:
    hbm, ddr, ssd = random.randint(0, 4), random.randint(0, 4), random.randint(0, 2)
    # Tenths have sums that depend on their order.
    one, two, three, four, five = (random.randint(0, 3) / 10 for _ in range(5))
    storage = Storage(unit * hbm, unit * ddr, unit * ssd)
    perf = Perf(
        fwd_compute=one,
        fwd_comms=two,
        bwd_compute=three,
        bwd_comms=four,
        input_dist_comms=random.random(),
        prefetch_compute=five,
    )
    return storage, perf
