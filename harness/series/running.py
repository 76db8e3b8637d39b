"""Run commits from their checkouts, each once, and store what each decides and counts."""

import hashlib
import json
import math
import os
import runpy
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct, field, structs, to_builtins

from harness.contract.abilities.history import History
from harness.execution.bootstrap import Report
from harness.execution.child import run
from harness.execution.messages import Failed, Stage
from harness.execution.server import start_server
from harness.measuring.environment import environment
from harness.model.cell import Cell, Environment, Summary
from harness.model.declared import Amount, Count, Name, Number, checked
from harness.model.ids import CellId, ProblemId
from harness.model.topology import Topology
from harness.series.repository import Commit, Repository
from harness.series.variants import CALLS
from harness.store.results import append_cells, read_cells

_ENDED = "The child process"  # what was killed may run another time

TREE = "tree"
"""The fact of a stored cell that says which files its commit has in the declared paths."""


class CommitAnswer(Struct, frozen=True):
    """The answer of a driver."""

    imported_from: Name
    fingerprint: Name
    quality: dict[str, Number]
    counters: dict[str, Count]
    calls: dict[str, dict[str, Count]]
    cpu_s: tuple[Amount, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Run:
    """A commit, and the cell of it or of another commit that has the same files."""

    commit: Commit
    cell: Cell

    @property
    def is_ok(self) -> bool:
        """Whether it ran."""
        return self.cell.status == "ok"

    @property
    def is_own(self) -> bool:
        """Whether it is this commit that was run."""
        return self.cell.variant == self.commit.id

    def calls(self, part: str) -> dict[str, int]:
        """Return the calls of a part, by the function that makes them."""
        beginning = f"{CALLS}{part} "
        return {
            name.removeprefix(beginning): count
            for name, count in self.cell.counters.items()
            if name.startswith(beginning)
        }

    def value(self, name: str) -> float:
        """Return a counter or a quality; NaN where it has none of that name."""
        return {**self.cell.counters, **self.cell.quality}.get(name, math.nan)


class Runner:
    """Runs commits on one problem, and stores each as a cell; what is stored is not run again.

    Commits that have the same files in the declared paths are run once. What failed is stored too,
    since it would fail again; what was stopped or killed is tried again. Who makes one holds
    `results`.

    Args:
        declared: the library.
        repository: where its commits are.
        problem: what each commit plans, with its topology.
        topology: the machines of the problem.
        results: the file for the cells.
        budget: seconds that a commit may take.
        repeat: how many calls to time.
        jobs: how many commits run at a time.
    """

    def __init__(
        self,
        declared: History,
        repository: Repository,
        problem: ProblemId,
        topology: Topology,
        results: Path,
        budget: float = 300.0,
        repeat: int = 0,
        jobs: int = 1,
    ) -> None:
        self.declared, self.repository, self.problem = declared, repository, problem
        self.ran = 0
        self._results, self._budget, self._repeat, self._jobs = results, budget, repeat, jobs
        self._request = {
            "workload": str(problem.workload),
            "topology": to_builtins(topology),
            "repeat": repeat,
        }
        self._environment = environment_of(declared)
        start_server((__name__, *declared.preloaded))
        self._stored: dict[str, Cell] = {}
        self._by_tree: dict[str, Cell] = {}
        self._appending = threading.Lock()
        for cell in read_cells(results) if results.exists() else ():
            if cell.problem == problem and self._counts_here(cell):
                self._keep(cell)

    def run(self, commit: Commit, *, own: bool = False) -> Run:
        """Run a commit, unless it is known; with `own` one of the same files will not do."""
        tree = self._tree(commit)
        cell = self._stored.get(commit.id) or (None if own else self._by_tree.get(tree))
        if cell is None:
            cell = self._measured(commit, tree)
            with self._appending:
                self.ran += 1
                self._keep(cell)
                if cell.status in ("ok", "failed"):
                    append_cells(self._results, [cell])
        return Run(commit, cell)

    def run_all(
        self, commits: Sequence[Commit], listen: Callable[[Run], None] = lambda run: None
    ) -> list[Run]:
        """Run commits, several at a time, and return them in their order.

        The last one is run itself: what others changed before it would not be seen otherwise.
        """
        first: dict[str, Commit] = {}
        for commit in commits:
            first.setdefault(self._tree(commit), commit)
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                for done in as_completed([pool.submit(self.run, each) for each in first.values()]):
                    listen(done.result())
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return [self.run(each, own=each is commits[-1]) for each in commits]

    def _keep(self, cell: Cell) -> None:
        self._stored[cell.variant] = cell
        self._by_tree.setdefault(str(cell.facts.get(TREE, "")), cell)

    def _counts_here(self, cell: Cell) -> bool:
        """Whether a stored cell was made as one would be made now."""
        one, two = cell.environment, self._environment
        timed = len(cell.cpu_s.samples) if cell.cpu_s else 0
        return (one.code, one.python, one.packages) == (two.code, two.python, two.packages) and (
            cell.status == "failed" or timed >= self._repeat
        )

    def _tree(self, commit: Commit) -> str:
        return self.repository.tree(commit, self.declared.paths, self.declared.ignored)

    def _measured(self, commit: Commit, tree: str) -> Cell:
        cell = Cell(
            id=CellId(self.declared.library, commit.id, self.problem),
            reference=commit.id,
            status="ok",
            facts={
                TREE: tree,
                "date": commit.date,
                "title": commit.title,
                "pull_request": commit.pull_request,
            },
            qualities=list(self.declared.qualities),
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
        cell.fingerprint, cell.quality = answer.fingerprint, answer.quality
        cell.counters = answer.counters | {
            f"{part}_calls": sum(made.values()) for part, made in answer.calls.items()
        }
        for part, made in answer.calls.items():
            cell.counters |= {f"{CALLS}{part} {name}": count for name, count in made.items()}
        cell.cpu_s = Summary.of(answer.cpu_s)
        return cell

    def _asked(self, commit: Commit, folder: Path) -> CommitAnswer | Failed:
        self.repository.check_out(commit, self.declared.package, folder)
        stage = Stage("Planning", self._budget)
        driver, where = str(self.declared.driver), str(folder)
        answered = run(_answer, driver, where, self._request, first=stage)
        if isinstance(answered, Failed):
            return answered
        answer = checked(answered, CommitAnswer, f"The driver of {commit.short}")
        if not Path(answer.imported_from).is_relative_to(folder):
            return Failed(f"It was not imported, but {answer.imported_from}")
        return answer


def _answer(driver: str, folder: str, request: dict[str, Any], _: Report) -> dict[str, Any]:
    """Child process: import a commit from the folder that it is in, and let a driver run it."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for standard in (1, 2):  # what hundreds of commits warn of would hide what is told of them
        os.dup2(nothing, standard)
    sys.path.insert(0, folder)
    answer: dict[str, Any] = runpy.run_path(driver)["HANDLERS"]["commit"](request)
    return answer


def environment_of(declared: History) -> Environment:
    """Return what commits are run in: their code is the driver's, and not the library."""
    digest = hashlib.sha256(json.dumps([declared.package, declared.paths]).encode())
    for path in sorted((*declared.driver.parent.glob("*.py"), *declared.helpers)):
        digest.update(path.name.encode() + path.read_bytes())
    found = environment(0)
    packages = {k: v for k, v in found.packages.items() if k != declared.library}
    return structs.replace(found, code=digest.hexdigest()[:12], packages=packages)
