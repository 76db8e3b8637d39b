"""A planner with a cache loads its plan, uses a similar one again, or starts from it."""

import logging
import os

import pytest
import torch
from cached_plans import (
    GIB,
    MIB,
    files,
    model,
    placement,
    planned,
    planner,
    rows_of,
    told,
    topology,
)
from compared import Log, come_to
from torch import nn
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import DynamicProgrammingProposer, GreedyProposer
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from planners.embedding.plan_cache.cache import PlanCache
from planners.embedding.search import warm_up
from planners.embedding.search.enumeration import DistinctShardEnumerator

ROWS = rows_of(8)
BOTH = ("same-plan", "best-plan")
LESS = topology(4 * GIB - 14 * MIB)


@pytest.fixture
def cache(tmp_path):
    return PlanCache(tmp_path / "plans")


@pytest.mark.parametrize("mode", BOTH)
def test_a_restart_loads_everything_that_the_search_found(mode, cache, monkeypatch):
    """The plan, the counts, classes, statistics and options are as after a search, without one."""

    def outcome(cache):
        made = planner(cache, mode=mode, stats=[Log()])
        return come_to(made, model(ROWS), [EmbeddingBagCollectionSharder()]), made

    (plain, _), (searched, first) = outcome(None), outcome(cache)
    with monkeypatch.context() as patch:  # a hit enumerates nothing
        patch.setattr(EmbeddingEnumerator, "populate_estimates", None)
        loaded, again = outcome(cache)
    assert [first.from_cache, again.from_cache] == ["", "hit"]
    assert loaded == searched == plain
    assert (again.bound_ms, len(again._best_plan)) == (first.bound_ms, 8)
    # TorchRec's own code may read the options later.
    options = [made._enumerator.last_stored_search_space for made in (again, first)]
    assert len(options[0]) == len(options[1]) > 8
    if hasattr(EmbeddingShardingPlanner, "get_search_space"):
        assert len(again.get_search_space()) == len(options[0])
    assert again.hash_planner_context_inputs() == first.hash_planner_context_inputs()


CHANGES = {
    "memory": lambda: {"machine": LESS},
    "ranks": lambda: {"machine": topology(ranks=8)},
    "batch": lambda: {"batch_size": 64},
    "seed": lambda: {"seed": 1},
    "limit": lambda: {"timeout_seconds": 100},
    "constraints": lambda: {"constraints": {"t1": ParameterConstraints(pooling_factors=[4.0])}},
    "reservation": lambda: {"storage_reservation": FixedPercentageStorageReservation(0.3)},
    "proposer": lambda: {"proposer": GreedyProposer()},
    "rows": lambda: {"rows": {**ROWS, "t1": 1}},
    "another table": lambda: {"rows": rows_of(9)},
    "names": lambda: {"rows": {f"u{name}": rows for name, rows in ROWS.items()}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_inputs_are_no_hit(change, cache):
    """Mode same-plan takes nothing from another problem."""
    planned(cache, ROWS)
    made, alone = (planned(kept, **{"rows": ROWS, **CHANGES[change]()}) for kept in (cache, None))
    assert made.from_cache == ""
    assert placement(made) == placement(alone)


@pytest.mark.parametrize(
    ("rows", "machine"),
    [
        (ROWS, LESS),
        ({**ROWS, "t7": ROWS["t7"] + 500}, topology()),
        (dict(reversed(ROWS.items())), topology()),
    ],
    ids=["less memory", "a larger table", "another order"],
)
def test_a_plan_near_the_bound_is_used_again_and_the_log_has_the_figures(
    rows, machine, cache, caplog
):
    """A similar problem takes the known options and ranks, which are a hit from then on."""

    def ranks(made):
        return {o.name: (o.sharding_type, [s.rank for s in o.shards]) for o in made._best_plan}

    first = planned(cache, ROWS, mode="best-plan")
    with caplog.at_level(logging.INFO, "shardbench"):
        near = planned(cache, rows, machine, mode="best-plan", check=True)
    rating = near._perf_model.rate(near._best_plan)
    assert near.from_cache == "near hit"
    assert ranks(near) == ranks(first)
    assert 0 < near.bound_ms <= rating <= near.bound_ms * 1.01
    assert f"is used again: {rating:.6g} ms, bound {near.bound_ms:.6g} ms, " in caplog.text
    again = planned(cache, rows, machine, mode="best-plan", check=True)
    assert (again.from_cache, placement(again)) == ("hit", placement(near))


@pytest.mark.parametrize(
    ("rows", "machine", "near"),
    [
        (rows_of(13), topology(4 * GIB - MIB), 0.01),
        (rows_of(12), topology(GIB // 16), 0.01),
        (rows_of(12), topology(4 * GIB - MIB), 0.0),
    ],
    ids=["another table", "less memory", "no share"],
)
def test_otherwise_the_search_starts_from_the_known_plan(rows, machine, near, tmp_path):
    """The plan is at most the share `near` worse than without a cache, and its bound holds."""
    cache = PlanCache(tmp_path, near=near)
    planned(cache, rows_of(12), mode="best-plan")
    made = planned(cache, rows, machine, mode="best-plan", check=True)
    alone = planned(None, rows, machine, mode="best-plan")
    assert made.from_cache == "start"
    assert made.bound_ms <= made.max_rank_ms <= 1.01 * alone.max_rank_ms


@pytest.mark.parametrize(
    ("proposer", "is_loaded"),
    [(DynamicProgrammingProposer(), True), (GreedyProposer(threshold=2), False)],
    ids=["compiled", "torchrec's search"],
)
def test_a_planner_hits_again_and_again(proposer, is_loaded, cache, caplog, monkeypatch):
    """Nothing that a plan leaves in a planner changes the key of the next one."""
    monkeypatch.setattr(warm_up, "are_loaded", lambda kernels: is_loaded)
    made = planner(cache, proposer=proposer)
    uses = []
    for _ in range(4):
        made.plan(model(ROWS), [EmbeddingBagCollectionSharder()])
        uses.append(made.from_cache)
        assert len(made._enumerator.last_stored_search_space) > 8 or len(uses) % 2
    assert uses == ["", "hit", "hit", "hit"]
    assert told(caplog) == []


def bags(**more):
    config = EmbeddingBagConfig(name="t", num_embeddings=9, embedding_dim=64, **more)
    return EmbeddingBagCollection([config], device=torch.device("cpu"))


class OwnEnumerator(EmbeddingEnumerator):
    """A user's own enumerator."""


class OwnProposer(GreedyProposer):
    """A user's own proposer."""


# By what the warning names: a module of tables, or an argument of the planner.
UNSERVED = {
    "Table 't' is virtual": lambda: bags(use_virtual_table=True, total_num_buckets=4),
    "several modules have a table t,": lambda: nn.Sequential(bags(), bags()),
    "the enumerator is the caller's own": lambda: {"enumerator": OwnEnumerator(topology(), 512)},
    "callback": lambda: {"callbacks": [lambda plan: plan]},
    "torchrec's own, without the cache, since OwnProposer": lambda: {"proposer": OwnProposer()},
}


@pytest.mark.parametrize("part", UNSERVED)
def test_what_the_cache_cannot_serve_is_told_once_before_the_search(
    part, cache, tmp_path, caplog, monkeypatch
):
    """One warning names the part of the problem that cannot be described."""

    def enumerate_after_it_is_told(*_, **__):
        assert told(caplog)
        return []

    for kind in (EmbeddingEnumerator, DistinctShardEnumerator):
        monkeypatch.setattr(kind, "enumerate", enumerate_after_it_is_told)
    module, made = nn.Module(), UNSERVED[part]()
    module.inner = bags() if isinstance(made, dict) else made
    used = planner(cache, **(made if isinstance(made, dict) else {}))
    for _ in range(2):
        used.plan(module, get_default_sharders())
    [sentence] = told(caplog)
    assert part in sentence
    assert "cache" in sentence
    assert files(tmp_path / "plans") == []


def test_the_plan_used_longest_ago_goes_first(tmp_path):
    """The files together take the given size, unless the newest alone takes more."""
    planned(PlanCache(tmp_path), rows_of(3))
    [first] = files(tmp_path)
    cache = PlanCache(tmp_path, most_gib=2.5 * first.stat().st_size / GIB)
    planned(cache, {**rows_of(3), "t0": 9})
    [second] = set(files(tmp_path)) - {first}
    for seconds, file in enumerate((first, second)):  # the file system's clock is coarse
        os.utime(file, (seconds, seconds))
    assert planned(cache, rows_of(3)).from_cache == "hit"
    planned(cache, {**rows_of(3), "t0": 10})
    assert first in files(tmp_path)
    assert second not in files(tmp_path)
    planned(PlanCache(tmp_path, most_gib=1 / GIB), rows_of(4))
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("wrong", [{"near": -1}, {"near": 2}, {"most_moved": 7}, {"most_gib": 0}])
def test_shares_and_sizes_have_limits(wrong, tmp_path):
    """A share is from 0 to 1, and a size above 0."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PlanCache(tmp_path, **wrong)
