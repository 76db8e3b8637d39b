"""Random models of several modules, as a user would pass them to torchrec's planner."""

import inspect
from dataclasses import dataclass
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
from torchrec.distributed.types import CacheParams
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
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


@dataclass(frozen=True)
class Model:
    """A model: the arguments of a planner and of its method `plan`."""

    module: nn.Module
    topology: Topology
    constraints: dict[str, ParameterConstraints]

    @property
    def sharders(self) -> list[Any]:
        """Return new sharders for all kinds of modules."""
        return [
            EmbeddingBagCollectionSharder(),
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


def random_model(random: Random, most_tables: int = 4) -> Model:
    """Return a random model with tables that need about all the devices' memory."""
    names = [f"table_{number}" for number in range(random.randint(1, most_tables))]
    sizes = {name: random_size(random) for name in names}
    topology = random_topology(random, sum(rows * columns * 4 for rows, columns in sizes.values()))
    model = nn.Module()
    model.inner = nn.Module()
    in_towers = []
    while names:
        some = [names.pop() for _ in range(min(len(names), random.randint(1, 3)))]
        parent = random.choice([model, model.inner])
        kind = random.choice([collection, collection, sequences, _tower, _towers])
        parent.add_module(f"module_{len(names)}", kind({name: sizes[name] for name in some}))
        if kind in (_tower, _towers):
            in_towers += some
    constraints = {
        name: random_constraints(random, name in in_towers)
        for name in sizes
        if random.random() < 0.7
    }
    return Model(model, topology, constraints)


def random_size(random: Random) -> tuple[int, int]:
    """Return a random number of rows and of columns of a table."""
    return random.choice([3, 100, 1000, 1000, 4097]), random.choice([16, 64, 64, 128])


def random_topology(
    random: Random, needed: int, whole_hosts: bool = False, spare: int = 200_000, **links: Any
) -> Topology:
    """Return devices with about `needed` bytes of memory together, sometimes unequal ones."""
    local_ranks = random.choice([1, 2, 4])
    ranks = local_ranks * random.randint(1, 3)
    if not whole_hosts:
        ranks += random.choice([0, 0, local_ranks - 1])
    held = [int(needed * random.choice([0.1, 0.5, 1, 2])) + spare] * ranks
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
        **_NO_WARNING,
        **links,
    )


def random_constraints(random: Random, in_tower: bool = False) -> ParameterConstraints:
    """Return random constraints of a table; a table in a tower may have any sharding type."""
    types = kernels = cache = None
    if not in_tower and random.random() < 0.7:
        types = random.sample(TYPES, random.randint(1, 4))
        if types == ["data_parallel"]:
            types = ["data_parallel", "row_wise"]
    if random.random() < 0.5:
        kernels = ["dense", *random.sample(["fused", "fused_uvm", "fused_uvm_caching"], 2)]
    if random.random() < 0.3:
        cache = CacheParams(load_factor=random.choice([0.1, 0.3]))
    return ParameterConstraints(
        sharding_types=types,
        compute_kernels=kernels,
        cache_params=cache,
        min_partition=random.choice([None, 16, 32]),
        pooling_factors=[random.choice([1.0, 2.5, 10.0])],
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
