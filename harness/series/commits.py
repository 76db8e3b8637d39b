"""Run the commits of a library from checkouts, and store their counts and decisions."""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from msgspec import structs

from harness.contract.abilities.series import Commits, Series
from harness.execution.child import run
from harness.execution.server import start_server
from harness.execution.worker import Failed, Report, Stage
from harness.measuring.environment import environment
from harness.model.cell import Cell, Summary
from harness.model.errors import ShardbenchError
from harness.model.ids import CellId, ProblemId
from harness.model.settings import LONG_CALL_S
from harness.model.topology import Topology
from harness.series import driving
from harness.series.driving import Counted, Timed
from harness.series.points import CALLS, Point, Run, environment_of
from harness.series.repository import Repository
from harness.store.cells import CellStore
from harness.store.keys import ELSEWHERE, difference, key_of

_ENDED = "The child process"  # starts the reason if a child was killed; a retry may succeed

FIRST_CALL_S = 10.0
"""Seconds from which on a first call, which also loads modules, differs little from the others."""

TREE = "tree"
"""The fact of a stored cell that is the hash of its commit's files in the declared paths."""


@dataclass
class Runner:
    """Runs commits on one problem and stores a cell for each; skips commits that are stored.

    Commits with the same files in the declared paths, the part of the repository that affects
    plans, run only once. Failed commits are stored too, since they would fail again. A commit that
    timed out or was killed is not stored; the next call retries it. Stored counts are used on any
    machine, and times only on the machine that took them. The caller must hold the lock of
    `store`.

    Attributes:
        declared: the declaration of the library.
        repository: the git repository of the library.
        problem: the problem that each commit plans.
        topology: the machines of the problem.
        store: the file for the cells.
        budget: the time limit for a commit in seconds.
        repeat: the number of calls to time.
        jobs: the number of commits that run at the same time.
        counted: whether to count calls, which takes some seven times as long as a call. If not, the
            first call is also a sample if it takes FIRST_CALL_S, and the only one if it takes
            LONG_CALL_S.
        planner: one of the library's planners; its default if empty.
        ran: how many commits this object has run.
        elsewhere: how many stored commits are used without the times of another machine.
        unused: by variant, why a commit's stored cells do not count here.
    """

    declared: Series
    repository: Repository
    problem: ProblemId
    topology: Topology
    store: CellStore
    budget: float = 300.0
    repeat: int = 0
    jobs: int = 1
    counted: bool = True
    planner: str = ""
    ran: int = field(default=0, init=False)
    unused: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.commits = self.declared.commits or Commits("", ())
        self._environment = environment_of(self.declared)
        self._key = key_of(self._environment)
        self._appending = threading.Lock()
        start_server((__name__, *self.commits.preloaded))
        self._cells: dict[str, Cell] = {}
        # Own cells come last, and replace those of other machines.
        for cell in sorted(self.store.values(), key=self._is_own):
            if cell.problem == self.problem and cell.variant.partition("+")[2] == self.planner:
                if not self._is_own(cell):  # counts are the same on all machines
                    cell.cpu_s = cell.wall_s = None
                if why := self._why_unused(cell):
                    self.unused[cell.variant] = why
                else:
                    self._cells[cell.variant] = cell
        for variant in self._cells:
            self.unused.pop(variant, None)
        self.elsewhere = sum(not self._is_own(cell) for cell in self._cells.values())

    def _is_own(self, cell: Cell) -> bool:
        return cell.environment.machine == self._environment.machine

    def _variant(self, commit: str) -> str:
        return f"{commit}+{self.planner}" if self.planner else commit

    def _why_unused(self, cell: Cell) -> str:
        """Return why a stored cell does not count here; empty if it does."""
        wanted = structs.replace(self._key, machine="")
        why = difference(cell.key, wanted, self.declared.earlier)
        if why or cell.status == "failed":
            return why
        samples = cell.cpu_s.samples if cell.cpu_s else ()
        if len(samples) < self.repeat and max(samples, default=0) < LONG_CALL_S:
            return "fewer timed calls than wanted" if self._is_own(cell) else ELSEWHERE
        return "no counts" if self.counted and not cell.counters else ""

    def run(self, commit: Point, *, own: bool = False) -> Run:
        """Run a commit, or reuse its stored cell.

        Without `own`, also reuse the cell of another commit with the same files.
        """
        tree = self._tree(commit)
        cell = self._cells.get(self._variant(commit.id))
        if cell is None and not own:
            same = [cell for cell in list(self._cells.values()) if cell.facts.get(TREE) == tree]
            cell = max(same, key=self._is_own, default=None)
        if cell is None:
            cell = self._measured(commit, tree)
            with self._appending:
                self.ran += 1
                self._cells[cell.variant] = cell
                if cell.status in ("ok", "failed"):
                    self.store.add_cells([cell])
        return Run(commit, cell)

    def is_known(self, commit: Point) -> bool:
        """Whether a commit itself was run, so that its cell is stored."""
        return self._variant(commit.id) in self._cells

    def run_all(
        self, commits: Sequence[Point], listen: Callable[[Run], None] = lambda run: None
    ) -> list[Run]:
        """Run commits in parallel and return their runs in the order of `commits`.

        The last commit always has its own run, so that a change outside the declared paths shows.
        """
        by_tree: dict[str, Point] = {}
        for commit in commits:
            by_tree.setdefault(self._tree(commit), commit)
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                pending = [pool.submit(self.run, commit) for commit in by_tree.values()]
                for done in as_completed(pending):
                    listen(done.result())
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return [self.run(commit, own=commit is commits[-1]) for commit in commits]

    def _tree(self, commit: Point) -> str:
        return self.repository.tree(commit, self.commits.paths, self.commits.ignored)

    def _measured(self, commit: Point, tree: str) -> Cell:
        variant = self._variant(commit.id)
        cell = Cell(
            id=CellId(self.declared.library, variant, self.problem),
            reference=variant,
            status="ok",
            facts={
                TREE: tree,
                "date": commit.date,
                "title": commit.title,
                "pull_request": commit.pull_request,
            },
            qualities=list(self.declared.qualities),
            key=str(self._key),
            environment=structs.replace(self._environment, load=environment(0).load),
        )
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="shardbench-") as folder:
            self.repository.check_out(commit, self.commits.package, Path(folder))
            request = driving.Request(
                str(self.declared.driver),
                str(self.problem.workload),
                self.topology,
                tuple(self.declared.parts),
                self.planner,
                warm_up=self.counted,
            )
            stage = Stage("Planning", self.budget)
            answered = run(_answers, self.commits.shims, folder, request, self.repeat, first=stage)
            cell.facts["seconds"] = round(time.monotonic() - start, 2)
            if isinstance(answered, Failed):
                is_final = answered.cause in ("error", "usage")
                is_final = is_final and not answered.reason.startswith(_ENDED)
                cell.status = "failed" if is_final else "over budget"
                cell.reason = answered.reason.replace(folder, "")
                return cell
        counted, timed = answered
        cell.cpu_s = Summary.of([times.cpu_s for times in timed])
        cell.wall_s = Summary.of([times.wall_s for times in timed])
        if counted is None:
            cell.fingerprint = timed[0].fingerprint
            return cell
        cell.fingerprint, cell.quality = counted.fingerprint, counted.quality
        cell.counters = dict.fromkeys(self.declared.counters, 0) | counted.counters
        for part, made in counted.calls.items():
            cell.counters[f"{part}_calls"] = sum(made.values())
        for part, made in counted.calls.items():
            cell.counters |= {f"{CALLS}{part} {name}": count for name, count in made.items()}
        return cell


def _answers(
    shims: str, folder: str, request: driving.Request, repeat: int, _: Report
) -> tuple[Counted | None, list[Timed]]:
    """Import a commit from `folder` in a child process; return its counts, then times."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for standard in (1, 2):  # warnings of hundreds of commits would hide shardbench's messages
        os.dup2(nothing, standard)
    sys.path.insert(0, folder)
    if shims:
        import_module(shims).install()
    counted = driving.counts(request) if request.warm_up else None
    timed: list[Timed] = []
    is_warm = request.warm_up
    while len(timed) < repeat:
        timed.append(driving.times(request))
        if not is_warm:
            is_warm = True
            if timed[0].cpu_s >= LONG_CALL_S:
                break
            if timed[0].cpu_s < FIRST_CALL_S:  # with work that is only done once, and is too much
                timed.clear()
    answers: list[Counted | Timed] = [counted, *timed] if counted else [*timed]
    for answer in answers:
        if not Path(answer.imported_from).is_relative_to(folder):
            raise ShardbenchError(f"It was not imported, but {answer.imported_from}")
    return counted, timed
