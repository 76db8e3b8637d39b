"""If the compiled search fails or finds a wrong plan, the planner warns once and torchrec plans."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torchrec
from planned import decided, new_planner, problem
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner

from harness.contract.supported_releases import UnsupportedRelease
from planners.embedding.drop_in.compiled_search import CompiledSearch
from planners.embedding.drop_in.planner import RELEASES, DistrustedSearch
from planners.embedding.search.enumeration import DistinctShardEnumerator
from planners.embedding.search.estimation import Estimation
from planners.embedding.search.options import Estimates
from planners.embedding.search.outcome import Found, NotFound
from planners.embedding.search.space import Placement


def finds(change):
    """Return the attribute by which the search returns `change(outcome, space)` of a plan."""
    search = CompiledSearch.search

    def changed(self, space, devices):
        outcome = search(self, space, devices)
        return change(outcome, space) if isinstance(outcome, Found) else outcome

    return [(CompiledSearch, "search", changed)]


def _rolled(outcome, space):
    """Put all shards of options placed by device on the next rank."""
    counts = np.diff(space.first_shard)[outcome.options]
    free = np.repeat(space.placement[outcome.options] == Placement.DEVICE, counts)
    return replace(outcome, ranks=np.where(free, (outcome.ranks + 1) % 8, outcome.ranks))


def _cheap(self, number, get=Estimates.get):
    storage, perf = get(self, number)
    perf.fwd_compute = perf.fwd_compute * 0.5
    return storage, perf


FAULTS = {  # the attributes that are replaced, and the reason in the warning
    "an exception": (
        [(CompiledSearch, "flatten", lambda self, options: 1 / 0)],
        ".*ZeroDivisionError: division by zero",
    ),
    "another rating": (
        finds(lambda outcome, _: replace(outcome, rating=outcome.rating * (1 + 1e-15))),
        "the compiled search rates its plan .* ms, torchrec",
    ),
    "no plan": (
        finds(lambda plan, _: NotFound(plan.options, plan.options, 1)),
        "torchrec places a proposal",
    ),
}
FAULTS_SEEN_BY_CHECK = FAULTS | {
    "one rank": (
        finds(lambda outcome, _: replace(outcome, ranks=np.zeros_like(outcome.ranks))),
        "[^.]",
    ),
    "a table less": (
        finds(lambda outcome, _: replace(outcome, options=outcome.options[:-1])),
        "[^.]",
    ),
    "wrong estimates": (
        [(Estimates, "get", _cheap), (Estimation, "_differs", lambda self, *_: False)],
        "torchrec estimates table .* differently",
    ),
    "other ranks": (finds(_rolled), ".*(other ranks|rates|must be on rank)"),
}


@pytest.mark.parametrize(
    ("fault", "arguments"),
    [
        *((fault, {}) for fault in FAULTS),
        *((fault, {"check": True}) for fault in FAULTS_SEEN_BY_CHECK),
        *(
            (fault, {"check": True, "mode": "best-plan"})
            for fault in FAULTS_SEEN_BY_CHECK
            if fault != "other ranks"
        ),
    ],
)
def test_a_planner_warns_once_of_a_fault_and_then_decides_as_torchrec(
    fault, arguments, monkeypatch
):
    """Faults are injected where options become arrays, in the search, and in the estimates."""
    replaced, reason = FAULTS_SEEN_BY_CHECK[fault]
    built = problem()
    expected = decided(new_planner(built, EmbeddingShardingPlanner), built)
    for attribute in replaced:
        monkeypatch.setattr(*attribute)
    planner = new_planner(built, **arguments)
    with pytest.warns(DistrustedSearch, match=f"search is torchrec's own, since {reason}") as said:
        assert decided(planner, built) == expected
    assert len(said) == 1
    assert decided(planner, built)[0] == expected[0], "and goes on so, in silence"


def test_on_another_release_all_is_torchrecs_own(monkeypatch):
    """A warning says so once, unless the user insists."""
    built = problem()
    expected = decided(new_planner(built, EmbeddingShardingPlanner), built)
    assert RELEASES.include(torchrec.__version__)
    monkeypatch.setattr(torchrec, "__version__", "1.10.0")
    monkeypatch.setattr("harness.contract.supported_releases._said", set())
    with monkeypatch.context() as without_search:
        without_search.setattr(CompiledSearch, "__init__", None)
        with pytest.warns(
            UnsupportedRelease, match=r"^Planner was tested with torchrec .*1\.10\.0"
        ):
            planner = new_planner(built, mode="best-plan", check=True)
        assert type(planner._enumerator) is EmbeddingEnumerator
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert decided(planner, built) == expected
            assert decided(copy.deepcopy(planner), built)[0] == expected[0]
    planner = new_planner(built, any_release=True)
    assert type(planner._enumerator) is DistinctShardEnumerator
    assert decided(planner, built) == expected
