"""Run the commits of a library from checkouts, and store their counts and decisions."""

import os
import runpy
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import structs

from harness.contract.abilities.series import Commits, Series
from harness.execution.child import run
from harness.execution.server import start_server
from harness.execution.worker import Failed, Report, Stage
from harness.measuring.environment import environment
from harness.model.cell import Cell, Summary
from harness.model.declared import checked
from harness.model.ids import CellId, ProblemId
from harness.model.settings import LONG_CALL_S
from harness.model.topology import Topology
from harness.series.points import CALLS, Counted, Point, Run, Timed, environment_of, request_of
from harness.series.repository import Repository
from harness.store.cells import CellStore
from harness.store.keys import ELSEWHERE, difference, key_of

_ENDED = "The child process"  # starts the reason if a child was killed; a retry may succeed

FIRST_CALL_S = 10.0
"""Seconds from which on a first call, which also loads modules, differs little from the others."""

TREE = "tree"
"""The fact of a stored cell that is the hash of its commit's files in the declared paths."""


class Runner:
    """Runs commits on one problem and stores a cell for each; skips commits that are stored.

    Commits with the same files in the declared paths, the part of the repository that affects
    plans, run only once. Failed commits are stored too, since they would fail again. A commit that
    timed out or was killed is not stored; the next call retries it. Stored counts are used on any
    machine, and times only on the machine that took them. The caller must hold the lock of
    `store`.

    Args:
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

    Attributes:
        ran: how many commits this object has run.
        elsewhere: how many stored commits are used without the times of another machine.
        unused: by variant, why a commit's stored cells do not count here.
    """

    def __init__(
        self,
        declared: Series,
        repository: Repository,
        problem: ProblemId,
        topology: Topology,
        store: CellStore,
        budget: float = 300.0,
        repeat: int = 0,
        jobs: int = 1,
        counted: bool = True,
        planner: str = "",
    ) -> None:
        self.declared, self.repository, self.problem = declared, repository, problem
        self.commits = declared.commits or Commits("", ())
        self.ran = 0
        self._store = store
        self._budget, self._repeat, self._jobs = budget, repeat, jobs
        self._counted, self._planner = counted, planner
        self._request = request_of(problem.workload, topology) | {
            "parts": list(declared.parts),
            "planner": planner,
            "warm_up": counted,
        }
        self._environment = environment_of(declared)
        start_server((__name__, *self.commits.preloaded))
        self._stored: dict[str, Cell] = {}
        self._by_tree: dict[str, Cell] = {}
        self.unused: dict[str, str] = {}
        self._appending = threading.Lock()
        self._read_stored()

    def _read_stored(self) -> None:
        """Find the stored cells that count here, without the times of other machines."""
        cells = list(self._store.values())
        cells.sort(key=self._is_own)  # own cells replace those of other machines
        for cell in cells:
            if cell.problem != self.problem or cell.variant.partition("+")[2] != self._planner:
                continue
            if not self._is_own(cell):  # counts are the same on all machines
                cell.cpu_s = cell.wall_s = None
            if why := self._why_unused(cell):
                self.unused[cell.variant] = why
            else:
                self._stored[cell.variant] = cell
        for cell in sorted(self._stored.values(), key=self._is_own, reverse=True):
            self._by_tree.setdefault(str(cell.facts.get(TREE, "")), cell)
            self.unused.pop(cell.variant, None)
        self.elsewhere = sum(not self._is_own(cell) for cell in self._stored.values())

    def _is_own(self, cell: Cell) -> bool:
        return cell.environment.machine == self._environment.machine

    def _variant(self, commit: Point) -> str:
        return f"{commit.id}+{self._planner}" if self._planner else commit.id

    def run(self, commit: Point, *, own: bool = False) -> Run:
        """Run a commit, or reuse its stored cell.

        Without `own`, also reuse the cell of another commit with the same files.
        """
        tree = self._tree(commit)
        cell = self._stored.get(self._variant(commit))
        cell = cell or (None if own else self._by_tree.get(tree))
        if cell is None:
            cell = self._measured(commit, tree)
            with self._appending:
                self.ran += 1
                self._keep(cell)
                if cell.status in ("ok", "failed"):
                    self._store.add_cells([cell])
        return Run(commit, cell)

    def is_known(self, commit: Point) -> bool:
        """Whether a commit itself was run, so that its cell is stored."""
        return self._variant(commit) in self._stored

    def run_all(
        self, commits: Sequence[Point], listen: Callable[[Run], None] = lambda run: None
    ) -> list[Run]:
        """Run commits in parallel and return their runs in the order of `commits`.

        The last commit always has its own run, so that a change outside the declared paths shows.
        """
        first: dict[str, Point] = {}
        for commit in commits:
            first.setdefault(self._tree(commit), commit)
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                pending = [pool.submit(self.run, commit) for commit in first.values()]
                for done in as_completed(pending):
                    listen(done.result())
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return [self.run(commit, own=commit is commits[-1]) for commit in commits]

    def _keep(self, cell: Cell) -> None:
        self._stored[cell.variant] = cell
        self._by_tree.setdefault(str(cell.facts.get(TREE, "")), cell)

    def _why_unused(self, cell: Cell) -> str:
        """Return why a stored cell does not count here; empty if it does."""
        wanted = structs.replace(key_of(self._environment), machine="")
        why = difference(cell.key, wanted, self.declared.earlier)
        if why or cell.status == "failed":
            return why
        samples = cell.cpu_s.samples if cell.cpu_s else ()
        if len(samples) < self._repeat and max(samples, default=0) < LONG_CALL_S:
            return "fewer timed calls than wanted" if self._is_own(cell) else ELSEWHERE
        return "no counts" if self._counted and not cell.counters else ""

    def _tree(self, commit: Point) -> str:
        return self.repository.tree(commit, self.commits.paths, self.commits.ignored)

    def _measured(self, commit: Point, tree: str) -> Cell:
        cell = Cell(
            id=CellId(self.declared.library, self._variant(commit), self.problem),
            reference=self._variant(commit),
            status="ok",
            facts={
                TREE: tree,
                "date": commit.date,
                "title": commit.title,
                "pull_request": commit.pull_request,
            },
            qualities=list(self.declared.qualities),
            key=str(key_of(self._environment)),
            environment=structs.replace(self._environment, load=environment(0).load),
        )
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="shardbench-") as folder:
            answer = self._asked(commit, Path(folder))
            cell.facts["seconds"] = round(time.monotonic() - start, 2)
            if isinstance(answer, Failed):
                is_sure = answer.cause == "error" and not answer.reason.startswith(_ENDED)
                cell.status = "failed" if is_sure else "over budget"
                cell.reason = answer.reason.replace(folder, "")
                return cell
        counted, timed = answer
        cell.cpu_s = Summary.of([times.cpu_s for times in timed])
        cell.wall_s = Summary.of([times.wall_s for times in timed])
        if counted is None:
            cell.fingerprint = timed[0].fingerprint
            return cell
        cell.fingerprint, cell.quality = counted.fingerprint, counted.quality
        cell.counters = dict(counted.counters)
        for part, made in counted.calls.items():
            cell.counters[f"{part}_calls"] = sum(made.values())
        for part, made in counted.calls.items():
            cell.counters |= {f"{CALLS}{part} {name}": count for name, count in made.items()}
        return cell

    def _asked(self, commit: Point, folder: Path) -> tuple[Counted | None, list[Timed]] | Failed:
        self.repository.check_out(commit, self.commits.package, folder)
        driver = str(self.declared.driver)
        stage = Stage("Planning", self._budget)
        answered = run(
            _answers,
            driver,
            self.commits.shims,
            str(folder),
            self._request,
            self._repeat,
            self._counted,
            first=stage,
        )
        if isinstance(answered, Failed):
            return answered
        who = f"The driver of {commit.name}"
        counted, timed = answered
        answer = checked(counted, Counted, who) if counted else None
        samples = [checked(times, Timed, who) for times in timed]
        for given in ([answer] if answer else []) + samples:
            if given.imported_from and not Path(given.imported_from).is_relative_to(folder):
                return Failed(f"It was not imported, but {given.imported_from}")
        return answer, samples


def _answers(
    driver: str,
    shims: str,
    folder: str,
    request: dict[str, Any],
    repeat: int,
    counted: bool,
    _: Report,
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Import a commit from `folder` in a child process; return the driver's counts, then times."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for standard in (1, 2):  # warnings of hundreds of commits would hide shardbench's messages
        os.dup2(nothing, standard)
    sys.path.insert(0, folder)
    if shims:
        import_module(shims).install()
    handlers = runpy.run_path(driver)["HANDLERS"]
    counts = handlers["counts"](request) if counted else None
    times: list[dict[str, Any]] = []
    while len(times) < repeat:
        times.append(handlers["times"](request))
        if not counted and len(times) == 1:
            first = times[0]["cpu_s"]
            if first >= LONG_CALL_S:
                break
            if first < FIRST_CALL_S:  # with what is only done once, that is too much of it
                times.clear()
                counted = True
    return counts, times
