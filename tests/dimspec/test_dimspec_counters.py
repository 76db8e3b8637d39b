"""The observer's counts of a call equal the counts derived from the search's source code."""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import factorial
from types import ModuleType

import pytest
from small_streams import SEARCHES, greedy, problem_of

from harness.contract.recorder import Recorder
from harness.measuring.jobs import check
from harness.measuring.timing.turns import SystemClock
from planners.dimspec import FAMILY, problem
from planners.dimspec.conversion import specs
from planners.dimspec.conversion.cheapest import CheapestSearch
from planners.dimspec.conversion.interned import InternedSearch, InternedSpec, InternedTensor
from planners.dimspec.conversion.partition import Mesh, Partition, all_partitions
from planners.dimspec.conversion.search import GreedySearch, PathCache
from planners.dimspec.conversion.specs import DimSpec, ShardingSpec
from planners.dimspec.conversion.stream import Query, Stream, all_pairs, once_each
from planners.dimspec.conversion.transitions import Transitions
from planners.dimspec.implementation import fingerprint
from planners.dimspec.observer import observe
from planners.dimspec.problem import StreamProblem, answer

PATCHED: tuple[type | ModuleType, ...] = (
    problem,
    specs,
    CheapestSearch,
    DimSpec,
    GreedySearch,
    InternedSearch,
    InternedSpec,
    InternedTensor,
    PathCache,
    ShardingSpec,
    Transitions,
)


def ordered(partition: Partition) -> Iterable[Partition]:
    return {partition, partition[::-1]}


@pytest.fixture(scope="module")
def stream() -> Stream:
    """Conversions with source and target unequal, dimensions in any order, and some repeats."""
    queries = tuple(
        Query(mesh, shape, source, pair.target)
        for mesh, shape in ((Mesh.of(2, 4), (8, 12, 6)), (Mesh.of(2, 2), (16, 4)))
        for pair in all_pairs(mesh, shape)
        if pair.source != pair.target
        for source in sorted(ordered(pair.source))
    )
    return Stream(queries, [*range(len(queries)), 5, 3, 40, 3, 5])


def observed(name: str, stream: Stream) -> Mapping[str, int]:
    return check(FAMILY, FAMILY.find(name), StreamProblem(stream), SystemClock()).counters


@pytest.fixture(scope="module")
def counted(stream):
    return {name: observed(name, stream) for name in SEARCHES}


def objects(rank: int, partition: Partition) -> int:
    """Return a spec's number of DimSpecs: one per sharded dimension, one for all others."""
    return len(partition) + (len(partition) < rank)


class Spelled:
    """Expected counts of the reference search and of the lazy one, by their source code."""

    def __init__(self, stream: Stream) -> None:
        specs_of_stream = {
            (mesh, shape, partition) for mesh, shape, *both in stream.queries for partition in both
        }
        self.specs = len(specs_of_stream)
        self.dim_specs = sum(1 + len(partition) for *_, partition in specs_of_stream)
        self.expansions = self.differences = 0
        self.lazy_dictionaries = sum(
            objects(len(shape), source)
            for _, shape, source in {
                each[:3] for index in stream.sequence for each in [stream.queries[index]]
            }
        )
        for index in stream.sequence:
            query = stream.queries[index]
            rank = len(query.shape)
            self.differences += rank
            for step in greedy(query):
                self.expansions += 1
                self.specs += len(step.candidates)
                self.dim_specs += sum(1 + len(each.partition) for each in step.candidates)
                self.differences += rank * len(step.compared)
                self.lazy_dictionaries += sum(
                    objects(rank, each.partition) for each in step.compared
                )


@pytest.fixture(scope="module")
def spelled(stream):
    return Spelled(stream)


@pytest.mark.parametrize("name", ["eager-dict", "lazy-dict", "shared-dict"])
def test_a_search_without_memory_does_what_the_text_says(name, counted, spelled, stream):
    found = dict(counted[name])
    dictionaries = found.pop("dictionaries_built")
    assert found == {
        "dim_specs_built": spelled.dim_specs,
        "sharding_specs_built": spelled.specs,
        "difference_calls": spelled.differences,
        "conversions": len(stream.sequence),
        "searches": len(stream.sequence),
        "distinct_searches": len(stream.queries),
        "expansions": spelled.expansions,
    }
    expected = spelled.dim_specs, spelled.lazy_dictionaries, 1
    assert expected[0] > expected[1] > 100
    assert dictionaries == expected[("eager-dict", "lazy-dict", "shared-dict").index(name)]


def test_the_path_cache_searches_each_conversion_once(counted, stream):
    found = counted["path-cache"]
    assert found["conversions"] == len(stream.sequence)
    assert found["searches"] == found["distinct_searches"] == len(set(stream.queries))
    assert found["expansions"] == sum(len(greedy(query)) for query in stream.queries)
    assert found["dictionaries_built"] == 1


def test_interned_builds_no_dictionary_and_each_layout_and_spec_once(counted, stream):
    found = counted["interned"]
    assert found["dictionaries_built"] == found["dim_specs_built"] == 0
    assert found["difference_calls"] == 0
    assert found["searches"] == found["distinct_searches"] == len(stream.queries)
    tensors = {query[:2] for query in stream.queries}
    # Two orders of the same dimensions are two layouts.
    assert found["expansions"] == sum(
        factorial(len(partition)) for tensor in tensors for partition in all_partitions(*tensor)
    )
    met = {
        (*query[:2], partition)
        for query in stream.queries
        for partition in (
            query.source,
            query.target,
            *(step.taken.partition for step in greedy(query)),
        )
    }
    assert found["sharding_specs_built"] == len(met)


def test_tensors_that_divide_alike_share_their_layouts():
    mesh = Mesh.of(2, 2)
    alone, more = (
        tuple(
            Query(mesh, shape, (), ((0, (0,)),))
            for shape in [(8, 8), (16, 64), (4, 12), (8, 6)][:count]
        )
        for count in (1, 4)
    )
    expansions = [
        observed("interned", Stream(queries, range(len(queries))))["expansions"]
        for queries in (alone, more)
    ]
    # 6 by 4 devices is the only one that does not divide.
    others = sum(factorial(len(each)) for each in all_partitions(mesh, (8, 6)))
    assert expansions[1] == expansions[0] + others
    assert others == expansions[0] - 1


def test_optimal_searches_each_conversion_once(counted, stream):
    found = counted["optimal"]
    by_target = {(*query[:3], tuple(sorted(query.target))) for query in stream.queries}
    assert found["searches"] == len(by_target)
    assert found["conversions"] == len(stream.sequence)


def test_what_shards_alike_is_searched_for_by_all_or_by_none():
    both = ((0, (0,)),)
    stream = Stream((Query(Mesh.of(2, 2), (8, 8), both, both),), [0, 0])
    found = {name: observed(name, stream)["searches"] > 0 for name in SEARCHES}
    assert len(set(found.values())) == 1, found


@pytest.mark.parametrize("name", SEARCHES)
def test_counting_repeats_exactly_and_does_not_change_the_answers(name, counted, stream):
    plain = fingerprint(answer(stream, SEARCHES[name]()))
    recorder = Recorder()
    with observe(recorder), recorder.call():
        counting = fingerprint(FAMILY.find(name).prepared(StreamProblem(stream)).run())
    assert counting == plain
    assert +recorder.counters == +Counter(counted[name])
    assert fingerprint(answer(stream, SEARCHES[name]())) == plain


def held() -> list[dict[str, object]]:
    return [
        {name: value for name, value in vars(owner).items() if callable(value)} for owner in PATCHED
    ]


@pytest.mark.parametrize("name", SEARCHES)
def test_nothing_stays_replaced_after_observing(name, stream):
    before = held()
    with observe(Recorder()):
        assert held() != before
        FAMILY.find(name).prepared(StreamProblem(once_each(stream.queries[:10]))).run()
    assert held() == before


def test_nothing_stays_replaced_after_an_error():
    before = held()
    query = Query(Mesh.of(2, 2, 2), (8, 8), (), ((0, (0,)),))
    problem = StreamProblem(Stream((query,), [0]))
    recorder = Recorder()
    with pytest.raises(Exception, match="KeyError"), observe(recorder), recorder.call():
        FAMILY.reference.prepared(problem).run()
    assert held() == before


def test_nothing_is_counted_outside_of_the_call(stream):
    recorder = Recorder()
    with observe(recorder):
        FAMILY.find("eager-dict").prepared(StreamProblem(once_each(stream.queries[:20]))).run()
    assert not +recorder.counters


def test_progress_is_how_many_conversions_of_all_were_asked_for(stream):
    recorder = Recorder()
    with observe(recorder), recorder.call():
        FAMILY.find("interned").prepared(StreamProblem(stream)).run()
    progress = recorder.progress()
    assert progress is not None
    assert (progress.done, progress.total) == (len(stream.sequence),) * 2
    assert progress.unit == "conversions"


@pytest.mark.parametrize("name", SEARCHES)
def test_time_is_spent_on_candidates_and_on_dictionaries_where_they_are_built(name):
    problem = problem_of("all-pairs[rank=2]/dgx_a100_80gb:4")
    found = check(FAMILY, FAMILY.find(name), problem, SystemClock())
    assert all(seconds >= 0 for seconds in found.phases.values())
    assert (found.phases["dictionaries"] > 0) == (found.counters["dictionaries_built"] > 0)
    assert found.phases["expansion"] > 0
