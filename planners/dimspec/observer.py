"""Count and time the work of all searches, by patching their methods."""

from contextlib import AbstractContextManager
from typing import Any

from harness.contract import Progress, Recorder
from planners.dimspec import problem
from planners.dimspec.conversion import specs
from planners.dimspec.conversion.cheapest import CheapestSearch
from planners.dimspec.conversion.interned import InternedSpec, InternedTensor
from planners.dimspec.conversion.search import Conversion, GreedySearch, Spec
from planners.dimspec.conversion.specs import DimSpec, ShardingSpec
from planners.dimspec.conversion.stream import Stream
from planners.dimspec.conversion.transitions import Transitions
from planners.dimspec.problem import Answers, Search
from planners.instruments import replaced


def observe(recorder: Recorder) -> AbstractContextManager[None]:
    """Record counters, phases and progress of all searches in the `with` block."""
    counters, counted, timed = recorder.counters, recorder.counted, recorder.timed
    asked: set[Any] = set()
    answer = problem.answer

    def answer_counted(stream: Stream, search: Search) -> Answers:
        """Answer a stream, and count all its conversions, also those from a cache."""
        total = len(stream.sequence)
        recorder.progress = lambda: Progress(counters["conversions"], total, "conversions")
        convert = type(search).convert

        def convert_counted(search: Search, *ends: Spec) -> Conversion:
            if recorder.current is not None:
                asked.add(tuple((end.mesh, end.shape, end.partition) for end in ends))
                counters["conversions"] += 1
                counters["distinct_searches"] = len(asked)
            return convert(search, *ends)

        with replaced([(type(search), "convert", convert_counted)]):
            return answer(stream, search)

    rows: list[tuple[Any, str, Any]] = [
        (problem, "answer", answer_counted),
        (GreedySearch, "expand", timed("expansion", GreedySearch.expand, "expansions")),
        (Transitions, "__init__", timed("expansion", Transitions.__init__)),
    ]
    for name in ("build_differences", "build_copied_differences"):
        build = getattr(specs, name)
        rows.append((specs, name, timed("dictionaries", build, "dictionaries_built")))
    for owner, name, counter in (
        (GreedySearch, "convert", "searches"),
        (InternedTensor, "search", "searches"),
        (CheapestSearch, "search", "searches"),
        (Transitions, "expand", "expansions"),
        (DimSpec, "__init__", "dim_specs_built"),
        (DimSpec, "difference", "difference_calls"),
        (ShardingSpec, "__init__", "sharding_specs_built"),
        (InternedSpec, "__init__", "sharding_specs_built"),
    ):
        rows.append((owner, name, counted(counter, getattr(owner, name))))
    return replaced(rows)
