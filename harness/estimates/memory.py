"""Validate a family's memory estimates: measure ranks of several decisions, each in a process."""

from typing import Annotated

from msgspec import Meta, Struct

from harness.contract.estimates import MemoryCandidate, MemorySet, RankMemory
from harness.estimates.timing import OnProgress
from harness.execution.child import run
from harness.execution.worker import Failed, Stage
from harness.measuring.environment import environment
from harness.model.cell import Environment
from harness.model.errors import ShardbenchError, UsageError
from harness.model.machine import GIB
from harness.store.keys import Task, key_of, missing
from harness.store.lines import Entry, Store

_WHOLE = ""  # the group of the whole rank
_SECONDS = 600.0
_ROOM_GIB = 2.0  # of a child process, for its modules and for building

Bytes = Annotated[int, Meta(ge=0)]


class TermFound(Struct, frozen=True):
    """The bytes of one term in a group of a rank: measured, and by name of the estimate.

    An estimate without the term has no entry.
    """

    group: str
    term: str
    measured: Bytes
    estimated: dict[str, Bytes]


class RankMemoryFound(Struct, frozen=True):
    """The memory of one rank of a decision under a setting; `whole` is the peak of the rank."""

    decision: str
    setting: str
    rank: int
    whole: TermFound
    terms: tuple[TermFound, ...]


class MemoryValidation(Struct, frozen=True):
    """The results of `validate_memory` on one problem."""

    problem: str
    device: str
    plans: int
    notes: tuple[str, ...]
    ranks: tuple[RankMemoryFound, ...]
    environment: Environment

    def errors(self, estimate: str) -> list[float]:
        """Return the relative error of an estimate for each rank, with its sign."""
        wholes = (rank.whole for rank in self.ranks)
        return [one.estimated[estimate] / one.measured - 1 for one in wholes]


def validate_memory(
    problem: str,
    device: str,
    plans: int,
    candidates: MemorySet,
    seed: int,
    store: Store[RankMemoryFound],
    on_progress: OnProgress = lambda measured, done, of: None,
) -> MemoryValidation:
    """Measure ranks of candidate decisions, once because counted bytes repeat exactly.

    Ranks that are stored with the same key are not measured again. Raises UsageError before
    measuring if a rank does not fit into the allowed memory.
    """
    works = [(decision, rank) for decision in candidates.decisions for rank in decision.ranks]
    for decision, rank in works:
        most = max(terms[_WHOLE][candidates.whole] for terms in rank.estimated.values()) / GIB
        if most > candidates.gib:
            raise UsageError(
                f"Rank {rank.rank} of plan '{decision.name}' takes {most:.3g} GiB; --gib allows "
                f"{candidates.gib:g}. Give it more, or measure a smaller workload."
            )
    where = environment(seed)
    key = key_of(where, device, plans, seed)
    ids = [f"{decision.name}, {decision.setting}, rank {rank.rank}" for decision, rank in works]
    tasks = [Task(work, frozenset([name]), key) for work, name in zip(works, ids, strict=True)]
    found: list[RankMemoryFound] = []
    for name, stored in zip(ids, missing(tasks, store.entries), strict=True):
        on_progress("the memory of ranks", len(found), len(works))
        measured = stored.values[0] if stored.values else _measured(*stored.task.what, candidates)
        if not stored.values:
            store.add(Entry(name, str(key), measured))
        found.append(measured)
    return MemoryValidation(problem, device, plans, tuple(candidates.notes), tuple(found), where)


def _measured(
    decision: MemoryCandidate, rank: RankMemory, candidates: MemorySet
) -> RankMemoryFound:
    """Measure a rank in a new process, so that no other rank's memory is counted."""
    what = f"rank {rank.rank} of plan '{decision.name}'"
    limit = candidates.gib + _ROOM_GIB
    groups = run(rank.measure, rank.job, first=Stage(what, _SECONDS), memory_gib=limit)
    if isinstance(groups, Failed):
        raise ShardbenchError(f"Measuring {what} with {decision.setting} failed: {groups.reason}")
    terms = tuple(
        TermFound(
            group,
            term,
            size,
            {
                name: of_groups[group][term]
                for name, of_groups in rank.estimated.items()
                if term in of_groups.get(group, {})
            },
        )
        for group, by_term in groups.items()
        for term, size in by_term.items()
    )
    (whole,) = (term for term in terms if term.group == _WHOLE)
    rest = tuple(term for term in terms if term.group != _WHOLE)
    return RankMemoryFound(decision.name, decision.setting, rank.rank, whole, rest)
