"""Of plans with equal ratings, the best plan is one with few sharding types in each module."""

from itertools import combinations
from random import Random

import pytest
import torch
from certified import standing_still
from hypothesis import given, settings
from small_problems import KINDS, fit, held_by, least_rating, problems
from torch import nn
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from planners.embedding.best_plan.search import best_plan
from planners.embedding.search.outcome import Deadline, Found
from planners.embedding.search.space import devices_of, search_space
from planners.embedding.tables.torchrec_objects import ModelParallelSharder

TYPES = ("table_wise", "column_wise", "row_wise")


@settings(max_examples=60, deadline=None)
@given(problems(kinds=tuple(KINDS)[:5], overfull=False).filter(lambda drawn: drawn[1].hosts > 0))
def test_no_plan_that_rates_as_well_has_fewer_types(problem):
    """The rating of every plan with fewer types, by enumeration, is above the best plan's."""
    space, placed_on = problem
    plan = best_plan(*problem, Deadline(0.05, standing_still))
    if not isinstance(plan, Found):
        return
    assert fit(held_by(space, placed_on, plan.options, plan.ranks), placed_on)
    types = [option.sharding_type for option in space.options]
    used = {types[option] for option in plan.options}
    for fewer in combinations(sorted(set(types)), len(used) - 1):
        allowed = {number for number, kind in enumerate(types) if kind in fewer}
        if {space.table[number] for number in allowed} == set(space.table.tolist()):
            assert least_rating(*problem, allowed) > plan.rating


def drawn(seed, types=TYPES):
    """Return a problem of 8 to 20 tables on 4 or 8 GPUs, in two modules if the seed is even."""
    random = Random(seed)
    count, ranks = random.choice((8, 14, 20)), random.choice((4, 8))
    model, constraints = nn.Module(), {}
    names = [f"table_{number}" for number in range(count)]
    parts = 2 - seed % 2
    for part in range(parts):
        tables = []
        for name in names[part::parts]:
            rows = random.choice((10_000, 200_000, 1_000_000))
            dim = random.choice((64, 128, 256))
            tables.append(
                EmbeddingBagConfig(
                    name=name, num_embeddings=rows, embedding_dim=dim, feature_names=[f"of {name}"]
                )
            )
            constraints[name] = ParameterConstraints(
                pooling_factors=[random.choice((1.0, 5.0, 20.0))],
                compute_kernels=["fused", "fused_uvm_caching"],
                sharding_types=list(types),
            )
        setattr(model, f"bags_{part}", EmbeddingBagCollection(device="meta", tables=tables))
    topology = Topology(world_size=ranks, compute_device="cuda", hbm_cap=2 * 2**30)
    enumerator = EmbeddingEnumerator(topology, 512, constraints)
    options = enumerator.enumerate(model, [ModelParallelSharder()])
    return search_space(options), devices_of(topology)


def types_of(space, plan):
    """Return the sharding types of a plan in each module, as (module, type)."""
    return {(space.options[o].path, space.options[o].sharding_type) for o in plan.options}


@pytest.mark.parametrize("seed", range(8))
def test_fewer_types_never_rate_as_well_on_tables_of_usual_sizes(seed):
    """If a search that may only use fewer types finds a plan, this one rates higher."""
    space, devices = drawn(seed)
    plan = best_plan(space, devices)
    used = types_of(space, plan)
    for count in range(1, len({kind for _, kind in used})):
        for types in combinations(TYPES, count):
            fewer_space, _ = drawn(seed, types)
            other = best_plan(fewer_space, devices)
            if isinstance(other, Found) and len(types_of(fewer_space, other)) < len(used):
                assert other.rating > plan.rating


def test_a_table_of_one_column_shard_is_table_wise():
    """Of two sharding types that cost the same, the one that TorchRec lists first is taken."""
    names = [f"table_{number}" for number in range(12)]
    bags = EmbeddingBagCollection(
        device=torch.device("meta"),
        tables=[
            EmbeddingBagConfig(
                name=name, num_embeddings=200_000, embedding_dim=64, feature_names=[f"of {name}"]
            )
            for name in names
        ],
    )
    topology = Topology(world_size=1, compute_device="cuda", hbm_cap=2 * 2**30)
    options = EmbeddingEnumerator(topology, 512).enumerate(bags, [ModelParallelSharder()])
    space = search_space(options)
    plan = best_plan(space, devices_of(topology))
    assert {kind for _, kind in types_of(space, plan)} == {"table_wise"}
