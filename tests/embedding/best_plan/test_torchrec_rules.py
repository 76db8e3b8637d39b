"""Of options that may take each other's place, the best plan has few sharding types."""

from itertools import product

import torch
from certified import standing_still
from hypothesis import assume, given, settings
from small_problems import KINDS, fit, held_by, options_with_ranks, problems
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import Topology
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from planners.embedding.best_plan.search import best_plan
from planners.embedding.search.outcome import Deadline, Found
from planners.embedding.search.space import devices_of, search_space
from planners.embedding.tables.torchrec_objects import ModelParallelSharder


@settings(max_examples=60, deadline=None)
@given(problems(kinds=tuple(KINDS)[:5], overfull=False).filter(lambda drawn: drawn[1].hosts > 0))
def test_no_options_in_the_place_of_a_plan_s_have_fewer_types(problem):
    space, placed_on = problem
    plan = best_plan(*problem, Deadline(0.05, standing_still))
    assume(isinstance(plan, Found))
    assert fit(held_by(space, placed_on, plan.options, plan.ranks), placed_on)

    def may_replace(other, option):
        mine, theirs = space.estimates_of(other), space.estimates_of(option)
        return (
            (space.table[other], space.placement[other])
            == (space.table[option], space.placement[option])
            and len(mine) == len(theirs)
            and (space.total[mine] <= space.total[theirs]).all()
            and (space.storage[mine] <= space.storage[theirs]).all()
        )

    options = [number for number, _ in options_with_ranks(space, plan.options, plan.ranks)]
    choices = [[o for o in range(len(space.options)) if may_replace(o, p)] for p in options]
    types = [option.sharding_type for option in space.options]
    used = len({types[option] for option in options})
    assert used == min(len({types[option] for option in chosen}) for chosen in product(*choices))


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
    assert {space.options[option].sharding_type for option in plan.options} == {"table_wise"}
