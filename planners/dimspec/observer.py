"""Counts the work of any search, from outside."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from harness.contract import Progress, Recorder
from planners.dimspec import answers
from planners.dimspec.answers import Answers, Search
from planners.dimspec.conversion import specs
from planners.dimspec.conversion.cheapest import CheapestSearch
from planners.dimspec.conversion.interned import InternedSpec, InternedTensor
from planners.dimspec.conversion.search import GreedySearch, Spec
from planners.dimspec.conversion.specs import DimSpec, ShardingSpec
from planners.dimspec.conversion.stream import Stream
from planners.dimspec.conversion.transitions import Transitions


@contextmanager
def observe(recorder: Recorder) -> Iterator[None]:
    """Record counters, phases and progress of every call inside."""
    asked: set[Any] = set()

    def noting(convert: Callable[..., Any]) -> Callable[..., Any]:
        """Note what is asked, also where the answer is remembered."""

        def noted(search: Search, source: Any, target: Any) -> Any:
            if recorder.current is not None:
                recorder.counters["conversions"] += 1
                query = _query(source), _query(target)
                if query not in asked:
                    asked.add(query)
                    recorder.counters["distinct_searches"] += 1
            return convert(search, source, target)

        return noted

    answer = answers.answer

    def answer_counted(stream: Stream, search: Search) -> Answers:
        total = len(stream.sequence)
        recorder.progress = lambda: Progress(recorder.counters["conversions"], total, "conversions")
        with mock.patch.object(type(search), "convert", noting(type(search).convert)):
            return answer(stream, search)

    with ExitStack() as patches:

        def replace(owner: Any, name: str, by: Callable[..., Any]) -> None:
            patches.enter_context(mock.patch.object(owner, name, by))

        replace(answers, "answer", answer_counted)
        for name in ("build_differences", "build_copied_differences"):
            build = getattr(specs, name)
            replace(specs, name, recorder.timed("dictionaries", build, "dictionaries_built"))
        replace(
            GreedySearch, "expand", recorder.timed("expansion", GreedySearch.expand, "expansions")
        )
        replace(Transitions, "__init__", recorder.timed("expansion", Transitions.__init__))
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
            replace(owner, name, recorder.counted(counter, getattr(owner, name)))
        yield


def _query(spec: Spec) -> Any:
    return spec.mesh, spec.shape, spec.partition
