"""Validate a family's memory estimates: measure ranks of several decisions, each in a process."""

from typing import Annotated

from msgspec import Meta, Struct

from harness.contract.estimates import MemorySet, RankMemory
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


class MeasuredTerm(Struct, frozen=True):
    """The bytes of one term in a group of a rank: measured, and by name of the estimate.

    An estimate without the term has no entry.
    """

    group: str
    term: str
    measured: Bytes
    estimated: dict[str, Bytes]


class MeasuredMemory(Struct, frozen=True):
    """The memory of one rank of a decision under a setting; `whole` is the peak of the rank."""

    decision: str
    setting: str
    rank: int
    whole: MeasuredTerm
    terms: tuple[MeasuredTerm, ...]


class MemoryValidation(Struct, frozen=True):
    """The results of `validate_memory` on one problem."""

    problem: str
    device: str
    plans: int
    notes: tuple[str, ...]
    ranks: tuple[MeasuredMemory, ...]
    environment: Environment

    def errors(self, estimate: str) -> list[float]:
        """Return the relative error of an estimate for each rank, without its sign."""
        wholes = [rank.whole for rank in self.ranks]
        return [abs(whole.estimated[estimate] / whole.measured - 1) for whole in wholes]


def validate_memory(
    problem: str,
    device: str,
    plans: int,
    memories: MemorySet,
    seed: int,
    store: Store[MeasuredMemory],
    on_progress: OnProgress = lambda measured, done, of: None,
) -> MemoryValidation:
    """Measure ranks of candidate decisions, once because counted bytes repeat exactly.

    Ranks that are stored with the same key are not measured again. Raises UsageError before
    measuring if a rank does not fit into the allowed memory.
    """
    for rank in memories.ranks:
        most = max(terms[_WHOLE][memories.whole] for terms in rank.estimated.values()) / GIB
        if most > memories.gib:
            raise UsageError(
                f"Measuring {rank} takes {most:.3g} GiB; --gib allows {memories.gib:g}. Give it "
                "more, or measure a smaller workload."
            )
    here = environment(seed)
    key = key_of(here, device, plans, seed)
    ids = {f"{rank.decision}, {rank.setting}, rank {rank.rank}": rank for rank in memories.ranks}
    tasks: list[Task[str, MeasuredMemory]]
    tasks = [Task(name, frozenset([name]), key) for name in ids]
    ranks: list[MeasuredMemory] = []
    for stored in missing(tasks, store.entries):
        on_progress("the memory of ranks", len(ranks), len(ids))
        name = stored.what
        measured = stored.values[0] if stored.values else _measured(ids[name], memories.gib)
        if not stored.values:
            store.add(Entry(name, str(key), measured))
        ranks.append(measured)
    return MemoryValidation(problem, device, plans, tuple(memories.notes), tuple(ranks), here)


def _measured(rank: RankMemory, gib: float) -> MeasuredMemory:
    """Measure a rank in a new process, so that no other rank's memory is counted."""
    stage = Stage(str(rank), _SECONDS)
    groups = run(rank.measure, rank.job, first=stage, memory_gib=gib + _ROOM_GIB)
    if isinstance(groups, Failed):
        raise ShardbenchError(f"Measuring {rank} failed: {groups.reason}")

    def measured(group: str, term: str, size: int) -> MeasuredTerm:
        estimated = {name: of.get(group, {}).get(term) for name, of in rank.estimated.items()}
        known = {name: value for name, value in estimated.items() if value is not None}
        return MeasuredTerm(group, term, size, known)

    terms = [
        measured(group, term, size)
        for group, sizes in groups.items()
        for term, size in sizes.items()
    ]
    (whole,) = (term for term in terms if term.group == _WHOLE)
    rest = tuple(term for term in terms if term.group != _WHOLE)
    return MeasuredMemory(rank.decision, rank.setting, rank.rank, whole, rest)
