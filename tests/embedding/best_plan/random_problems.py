"""Random problems of a few tables with torchrec's own estimates, drawn by a seed."""

from random import Random

import torch
from torch import nn
from torchrec.distributed.planner.types import (
    CustomTopologyData,
    ParameterConstraints,
    Topology,
)
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.space import Devices, SearchSpace, devices_of, search_space
from planners.embedding.tables.torchrec_objects import ModelParallelSharder

_TYPES = (
    ("table_wise", "row_wise", "column_wise"),
    ("table_wise", "row_wise", "column_wise", "table_row_wise", "table_column_wise", "grid_shard"),
    ("table_wise", "row_wise", "table_row_wise"),
    ("table_wise", "column_wise"),
)
_KERNELS = (("fused",), ("fused", "fused_uvm_caching"), ("fused", "fused_uvm", "fused_uvm_caching"))
_MEGABYTE = 2**20


def random_problem(
    seed: int, tables: tuple[int, int] = (3, 20), ranks: tuple[int, ...] = (4, 8, 16)
) -> tuple[SearchSpace, Devices]:
    """Return a problem with tables of any size on few ranks, with scarce to ample memory."""
    random = Random(seed)
    names = [f"table_{number:02d}" for number in range(random.randint(*tables))]
    sizes = {name: _size(random) for name in names}
    world = random.choice(ranks)
    bytes_of_all = sum(rows * columns * 4 for rows, columns in sizes.values())
    spare = random.choice([0, 10, 60]) * _MEGABYTE
    hbm = int(bytes_of_all * random.choice([0.45, 0.7, 0.9, 1.3, 2.5]) / world) + spare
    ddr = int(bytes_of_all * random.choice([0.3, 0.7, 2.0]) / world) + spare
    topology = Topology(
        world_size=world,
        local_world_size=random.choice([4, 8]) if world > 4 else 4,
        compute_device="cuda",
        custom_topology_data=CustomTopologyData(
            {"hbm_cap": [hbm] * world, "ddr_cap": [ddr] * world}, world
        ),
    )
    kernels, types = random.choice(_KERNELS), random.choice(_TYPES)
    cut = random.choice([None, 32, 64, 128])
    constraints = {
        name: ParameterConstraints(
            sharding_types=list(types),
            compute_kernels=list(kernels),
            min_partition=cut,
            pooling_factors=[random.choice([1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0])],
        )
        for name in names
    }
    model = EmbeddingBagCollection(
        device=torch.device("meta"),
        tables=[
            EmbeddingBagConfig(
                name=name, num_embeddings=rows, embedding_dim=columns, feature_names=[f"of {name}"]
            )
            for name, (rows, columns) in sizes.items()
        ],
    )
    holder = nn.Module()
    holder.bags = model
    enumerator = DistinctShardEnumerator(topology, batch_size=512, constraints=constraints)
    return search_space(enumerator.enumerate(holder, [ModelParallelSharder()])), devices_of(
        topology
    )


def _size(random: Random) -> tuple[int, int]:
    largest = 8.2 if random.random() < 0.1 else 7.3
    return int(10 ** random.uniform(0, largest)), random.choice(
        [4, 16, 32, 64, 128, 256, 512, 1024]
    )
