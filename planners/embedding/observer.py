"""Records counters, phases and progress of any EmbeddingShardingPlanner by wrapping methods."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.types import Proposer, ShardingOption

from harness.contract import Progress, Recorder
from planners.embedding.drop_in.compiled_search import CompiledSearch
from planners.embedding.series.driver import counted, observe_components, phases, replace_timed
from planners.instruments import replaced


@contextmanager
def observe(recorder: Recorder) -> Iterator[None]:
    """Record the phases, counters and progress of every plan made inside this context."""
    with phases(recorder, _observe), counted(recorder), replaced(_counted_options(recorder)):
        yield


def _counted_options(recorder: Recorder) -> Iterator[tuple[type, str, Any]]:
    """Yield replacements that count the hashes of options and the sums over their shards."""
    hashed = recorder.counted("option_hashes", ShardingOption.__hash__)
    yield ShardingOption, "__hash__", hashed
    for name in ("total_storage", "total_perf"):
        total = vars(ShardingOption)[name].fget
        yield ShardingOption, name, property(recorder.counted("option_sums", total))


def _observe(planner: EmbeddingShardingPlanner, recorder: Recorder) -> None:
    """Record a planner's steps; of a compiled search those that stand for torchrec's."""
    compiled = planner._partitioner
    if not isinstance(compiled, CompiledSearch):
        observe_components(planner, recorder)
        options = _observed_options(planner._enumerator)
        recorder.progress = lambda: (
            _progress(recorder.counters["proposals"], planner._proposers) or options.progress()
        )
        return
    replace_timed(recorder, planner._enumerator, "enumerate", "enumerate")
    replace_timed(recorder, planner._perf_model, "rate", "rate")
    replace_timed(recorder, compiled, "flatten", "arrays")
    replace_timed(recorder, compiled, "search", "search")
    load = compiled.load

    def counted_load(*args: Any, **kwargs: Any) -> None:
        load(*args, **kwargs)
        recorder.counters["proposals"] += compiled.proposed
        recorder.counters["partitions"] += compiled.outcome.proposals

    compiled.load = recorder.timed("propose", counted_load)  # type: ignore[method-assign]
    recorder.progress = lambda: _progress(compiled.proposed, [compiled])


class _ObservedOptions(list[ShardingOption]):
    """Options that count in `seen` how many of them the latest loop has finished."""

    seen = 0

    def __iter__(self) -> Iterator[ShardingOption]:
        self.seen = 0
        for option in super().__iter__():
            yield option
            self.seen += 1

    def progress(self) -> Progress | None:
        """Return how many options have been estimated; None before the first."""
        done = Progress(self.seen, len(self), "options estimated", more_follows=True)
        return done if self.seen else None


def _observed_options(enumerator: Any) -> _ObservedOptions:
    """Return the options that an enumerator estimates from now on."""
    populate_estimates, options = enumerator.populate_estimates, _ObservedOptions()

    def populate_observed(enumerated: list[ShardingOption]) -> None:
        options.extend(enumerated)
        populate_estimates(options)

    enumerator.populate_estimates = populate_observed
    return options


def _progress(done: int, proposers: Iterable[Proposer]) -> Progress | None:
    """Return how many proposals have been made, of those expected if that is known."""
    expected = [*map(_expected_proposals, proposers)]
    total = None if None in expected else sum(count or 0 for count in expected)
    return Progress(done, total, "proposals") if done else None


def _expected_proposals(proposer: Proposer) -> int | None:
    """Return how many proposals a loaded proposer will make, or None if that is unknown."""
    if isinstance(proposer, GreedyProposer):
        return 1 + sum(len(table) - 1 for table in proposer._sharding_options_by_fqn.values())
    if isinstance(proposer, UniformProposer):
        return len(proposer._grouped_sharding_options)
    if isinstance(proposer, GridSearchProposer):
        return len(proposer._proposals)
    if isinstance(proposer, DynamicProgrammingProposer) and proposer._inited:
        return 1 + len(proposer._proposal_list)
    return None
