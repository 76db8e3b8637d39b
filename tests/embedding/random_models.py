"""Random models of several modules, as a user would pass them to torchrec's planner."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import torch
from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_tower_sharding import (
    EmbeddingTowerCollectionSharder,
    EmbeddingTowerSharder,
)
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import CustomTopologyData, ParameterConstraints, Topology
from torchrec.distributed.types import BoundsCheckMode, CacheAlgorithm, CacheParams
from torchrec.modules.embedding_configs import (
    DataType,
    EmbeddingBagConfig,
    EmbeddingConfig,
    PoolingType,
)
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.modules.embedding_tower import EmbeddingTower, EmbeddingTowerCollection

META = torch.device("meta")
# Avoids a warning of torchrec 1.7.0 and later.
_NO_WARNING = {
    name: True
    for name in inspect.signature(Topology.__init__).parameters
    if name == "created_by_factory"
}
TYPES = (
    "data_parallel",
    "table_wise",
    "column_wise",
    "row_wise",
    "table_row_wise",
    "table_column_wise",
    "grid_shard",
)


# Five of the last five come to 17.5 since Python 3.12, and to more before.
_POOLING_FACTORS = (0.3, 1.0, 2.5, 17.0, 5.2, 5.8, 2.8, 2.6, 1.1)


@dataclass
class Model:
    """A model: the arguments of a planner and of its method `plan`."""

    module: nn.Module
    topology: Topology
    constraints: dict[str, ParameterConstraints] = field(default_factory=dict)
    fused_params: dict[str, Any] = field(default_factory=dict)

    @property
    def sharders(self) -> list[Any]:
        """Return new sharders for all kinds of modules."""
        return [
            EmbeddingBagCollectionSharder(self.fused_params),
            EmbeddingCollectionSharder(),
            EmbeddingTowerSharder(),
            EmbeddingTowerCollectionSharder(),
        ]

    def components(self) -> dict[str, Any]:
        """Return the arguments of a planner; those with state are new objects."""
        return {
            "topology": self.topology,
            "constraints": self.constraints,
            "storage_reservation": FixedPercentageStorageReservation(percentage=0.1),
            "stats": [],
            "debug": False,
        }


def random_model(random: Random, most_tables: int = 4, unusual: bool = True) -> Model:
    """Return a random model with tables that need about all the devices' memory.

    Tables have settings of all kinds. An unusual one may have towers and an incomplete host.
    """
    sizes = _random_sizes(random, most_tables)
    topology = _random_topology(random, sizes, unusual)
    kinds = [partial(_random_bags, random)] * 2 + [sequences]
    module, of_kind = _random_module(random, sizes, kinds + [_tower, _towers] * unusual)
    constraints = {
        name: random_constraints(random, of_kind[name] in (_tower, _towers))
        for name in sizes
        if random.random() < 0.7
    }
    fused = random.choice([{}, {"cache_load_factor": 0.15}, {"prefetch_pipeline": True}])
    return Model(module, topology, constraints, fused)


def _random_sizes(random: Random, most_tables: int) -> dict[str, tuple[int, int]]:
    """Return the random numbers of rows and of columns of tables."""
    rows, columns = [3, 100, 1000, 1000, 4097], [16, 64, 64, 128]
    return {
        f"table_{number}": (random.choice(rows), random.choice(columns))
        for number in range(random.randint(1, most_tables))
    }


def _random_module(
    random: Random, sizes: dict[str, tuple[int, int]], kinds: Sequence[Any]
) -> tuple[nn.Module, dict[str, Any]]:
    """Return a module with the tables in modules of some kinds, and the kind of each table."""
    model = nn.Module()
    model.inner = nn.Module()
    names, of_kind = list(sizes), {}
    while names:
        some = [names.pop() for _ in range(min(len(names), random.randint(1, 3)))]
        parent = random.choice([model, model.inner])
        kind = random.choice(kinds)
        parent.add_module(f"module_{len(names)}", kind({name: sizes[name] for name in some}))
        of_kind |= dict.fromkeys(some, kind)
    return model, of_kind


def _random_bags(random: Random, sizes: dict[str, tuple[int, int]]) -> EmbeddingBagCollection:
    configs = [
        EmbeddingBagConfig(
            name=name,
            num_embeddings=rows,
            embedding_dim=dim,
            feature_names=["shared", f"{name}_own"],
            data_type=random.choice([DataType.FP32, DataType.FP16]),
            pooling=random.choice([PoolingType.SUM, PoolingType.MEAN]),
        )
        for name, (rows, dim) in sizes.items()
    ]
    bags = EmbeddingBagCollection(configs, random.random() < 0.3, META)
    if random.random() < 0.3:
        for parameter in bags.parameters():
            parameter._optimizer_classes = [random.choice([torch.optim.Adam, torch.optim.Rprop])]
    return bags


def _random_topology(random: Random, sizes: dict[str, tuple[int, int]], unusual: bool) -> Topology:
    """Return devices with about the memory of the tables together, sometimes unequal ones."""
    needed = sum(rows * columns * 4 for rows, columns in sizes.values())
    local_ranks = random.choice([1, 2, 4])
    ranks = local_ranks * random.randint(1, 3)
    if unusual:
        ranks += random.choice([0, 0, local_ranks - 1])
    held = [int(needed * random.choice([0.1, 0.5, 1, 2])) + 300_000] * ranks
    if random.random() < 0.3:
        held = [int(amount * random.choice([0.5, 1, 2])) for amount in held]
    device = random.choice(["cuda", "cuda", "cuda", "cpu"])
    return Topology(
        world_size=ranks,
        local_world_size=local_ranks,
        compute_device=device,
        custom_topology_data=CustomTopologyData(
            {"hbm_cap" if device == "cuda" else "ddr_cap": held}, ranks
        ),
        ssd_cap=random.choice([0, 2**40]),
        inter_host_bw=random.choice([1e7, 3e7]),
        **_NO_WARNING,
    )


def random_constraints(random: Random, in_tower: bool = False) -> ParameterConstraints:
    """Return random constraints of a table; a table in a tower may have any sharding type."""
    types = kernels = cache = None
    features = random.choice([1, 1, 2, 5])
    if not in_tower and random.random() < 0.7:
        types = [*random.sample(TYPES, random.randint(1, 4)), "table_wise"]
    if random.random() < 0.5:
        kernels = ["dense", *random.sample(["fused", "fused_uvm", "fused_uvm_caching"], 2)]
    if random.random() < 0.3:
        cache = CacheParams(CacheAlgorithm.LRU, random.choice([None, 0, 0.1, 0.3, 1, 1.0, 1.5]))
    return ParameterConstraints(
        sharding_types=types,
        compute_kernels=kernels,
        cache_params=cache,
        min_partition=random.choice([None, 16, 32]),
        pooling_factors=random.choices(_POOLING_FACTORS, k=features),
        num_poolings=random.choice([None, [2.0] * features]),
        batch_sizes=random.choice([None, [64] * features]),
        is_weighted=random.random() < 0.3,
        stochastic_rounding=random.choice([None, False]),
        bounds_check_mode=random.choice([None, BoundsCheckMode.WARNING]),
        output_dtype=random.choice([None, DataType.FP16]),
        feature_names=random.choice([None, ["shared"]]),
    )


def collection(
    sizes: dict[str, tuple[int, int]],
    kind: type[Any] = EmbeddingBagCollection,
    device: torch.device = META,
) -> Any:
    """Return a collection of tables, by name and size."""
    config = EmbeddingBagConfig if issubclass(kind, EmbeddingBagCollection) else EmbeddingConfig
    return kind(
        device=device,
        tables=[
            config(
                name=name, num_embeddings=rows, embedding_dim=columns, feature_names=[name + "_f"]
            )
            for name, (rows, columns) in sizes.items()
        ],
    )


def sequences(sizes: dict[str, tuple[int, int]]) -> EmbeddingCollection:
    """Return an EmbeddingCollection of tables, all with as many columns as the first."""
    columns = next(iter(sizes.values()))[1]
    return collection(
        {name: (rows, columns) for name, (rows, _) in sizes.items()}, EmbeddingCollection
    )


def _tower(sizes: dict[str, tuple[int, int]]) -> EmbeddingTower:
    return EmbeddingTower(collection(sizes), nn.Linear(1, 1))


def _towers(sizes: dict[str, tuple[int, int]]) -> EmbeddingTowerCollection:
    return EmbeddingTowerCollection([_tower({name: size}) for name, size in sizes.items()])
