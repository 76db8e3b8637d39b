"""Run the releases and commits of a library on a problem, and store a cell for each."""

import hashlib
import json
import math
import os
import sys
import tempfile
import threading
import time
from collections import Counter as Counts
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec import structs

from harness.contract import (
    Counter,
    Family,
    Measured,
    Prepared,
    ShardbenchError,
    Topology,
    Upstream,
    WorkloadSpec,
    is_observing,
)
from harness.contract.abilities import Commits, Series
from harness.contract.registry import Registry
from harness.execution.child import run
from harness.execution.server import start_server
from harness.execution.worker import Failed, Report, Stage
from harness.measuring.comparison import Comparison
from harness.measuring.environment import environment
from harness.measuring.jobs import Listener
from harness.measuring.request import Request
from harness.model.cell import Cell, Environment, Summary
from harness.model.ids import CellId, ProblemId
from harness.model.settings import LONG_CALL_S, SamplingRule, Settings
from harness.series import driving
from harness.series.driving import Outcome
from harness.series.installing import Place, version_of
from harness.series.points import Point, Run
from harness.series.repository import Repository
from harness.store.cells import CellStore
from harness.store.keys import ELSEWHERE, Task, difference, key_of, missing

_ENDED = "The child process"  # starts the reason if a child was killed; a retry may succeed

FIRST_CALL_S = 10.0
"""Seconds from which on a first call, which also loads modules, differs little from the others."""

TREE = "tree"
"""The fact of a stored cell that is the hash of its commit's files in the declared paths."""


def environment_of(declared: Series) -> Environment:
    """Return the environment without the library, and with the driver's hash as its code."""
    commits = declared.commits
    digest = hashlib.sha256(json.dumps(commits and [commits.package, commits.paths]).encode())
    for path in sorted(declared.driver.parent.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    here = environment(0)
    packages = {k: v for k, v in here.packages.items() if k != declared.library}
    return structs.replace(here, code=digest.hexdigest()[:12], packages=packages)


# --- Releases: variants of a family, timed in turns -----------------------------------------------


def settings_of(turns: int, seconds: float, budget: float) -> Settings:
    """Return settings that time `turns` samples of each release, rounded up to an even number.

    After `seconds` no further pair of samples starts, but at least two pairs run.
    """
    blocks = math.ceil(turns / 2)
    return Settings(budget, SamplingRule(seconds, blocks, blocks, warmup_seconds=0.0))


def measure_releases(
    declared: Series,
    base: Family[Any, Any],
    problem: ProblemId,
    topology: Topology,
    places: Sequence[Place],
    settings: Settings,
    store: CellStore,
    listen: Listener = lambda event: None,
) -> list[Cell]:
    """Measure the releases that have no stored cell, store theirs, and return all cells.

    Workloads have the same labels as in the family `base`. The caller must hold the lock of
    `store`. Failed releases are not stored, so the next call runs them again.
    """
    family = _family_of(declared, places, base.label)
    request = Request(family, problem.workload, topology, purpose="releases")
    here = environment_of(declared)
    key = key_of(here, settings, request.reference.name)
    ids = frozenset(str(request.cell_id(name)) for name in request.names())
    (known,) = missing([Task(request, ids, key, declared.earlier)], store.entries)
    stored = tuple(cell for cell in known.values if cell.status == "ok")
    if {cell.variant for cell in stored} >= request.names():
        return list(stored)
    registry = partial(_registry, declared, tuple(places))
    cells = Comparison(replace(request, stored=stored), settings, registry).run(listen)
    load = environment(0).load  # the load average of the last minute
    for cell in cells:
        cell.environment, cell.key = structs.replace(here, load=load), str(key)
    store.add_cells(cell for cell in cells if cell.status == "ok")
    return [*stored, *cells]


def _family_of(
    declared: Series,
    places: Sequence[Place],
    label: Callable[[WorkloadSpec], WorkloadSpec] = lambda workload: workload,
) -> Family[driving.Request, Outcome]:
    """Return a family with releases as variants; the oldest installed release is the reference."""
    driver, parts = str(declared.driver), (declared.first_part,)
    work: Any = SimpleNamespace(  # the driver builds the problem
        build=lambda workload, topology: driving.Request(driver, str(workload), topology, parts),
        facts=lambda problem: {},
        fingerprint=lambda outcome: outcome.fingerprint,
        validate=lambda problem, outcome: None,
        quality=lambda problem, outcome: outcome.quality,
        observe=lambda recorder: nullcontext(),
    )
    family: Family[driving.Request, Outcome] = Family(
        name=declared.library,
        summary=f"releases of {declared.library}",
        implementation=work,
        qualities=declared.qualities,
        counters=tuple(Counter(*named) for named in declared.counters.items()),
        phases=declared.releases.phases if declared.releases else (),
        label=label,
    )
    ordered = sorted(places, key=lambda place: version_of(place.release))
    first = next((place for place in ordered if not place.missing), ordered[0])
    for place in ordered:
        register = family.variant(place.release, summary="a release", reference=place is first)
        register(partial(_prepared, declared, place))
    return family


def _registry(declared: Series, places: Sequence[Place]) -> Registry:
    return Registry([_family_of(declared, places)])


def _prepared(declared: Series, place: Place, problem: driving.Request) -> Prepared[Outcome]:
    if place.missing:
        raise ShardbenchError(place.missing)
    upstream = Upstream(f"{declared.library} {place.release}", driving.__name__, place.folder)
    # The sources of the installed release may be elsewhere.
    folder = "" if str(place.folder) in sys.path else str(place.folder)
    request = msgspec.to_builtins(structs.replace(problem, folder=folder))

    def ask(kind: str) -> Outcome:
        return msgspec.convert(upstream.ask(request | {"kind": kind}), Outcome)

    def run() -> Measured[Outcome]:
        timed = decided = ask("times")
        counters: dict[str, int] = {}
        if is_observing():
            decided = ask("counts")
            counters = dict.fromkeys(declared.counters, 0) | decided.counters
        return Measured(decided, timed.wall_s, timed.cpu_s, counters, timed.phases)

    return Prepared(run, close=upstream.close)


# --- Commits: each in a child process that has imported all but the library -----------------------


@dataclass
class Runner:
    """Runs commits on one problem and stores a cell for each; skips commits that are stored.

    Commits with the same files in the declared paths run only once. Failed commits are stored too,
    since they would fail again. A commit that timed out or was killed is not stored; the next call
    retries it. Stored counts are used on any machine, and times only on the machine that took them.
    The caller must hold the lock of `store`.

    Attributes:
        budget: the time limit for a commit in seconds.
        repeat: the number of calls to time.
        jobs: the number of commits that run at the same time.
        counted: whether to count calls, which takes some seven times as long as a call. If not, the
            first call is also a sample if it takes FIRST_CALL_S, and the only one if it takes
            LONG_CALL_S.
        planner: one of the library's planners; its default if empty.
        ran: how many commits this object has run.
        notes: how many stored commits are not used, or only in part, by the reason.
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
    notes: Counts[str] = field(default_factory=Counts, init=False)

    def __post_init__(self) -> None:
        self.commits = self.declared.commits or Commits("", ())
        self._environment = environment_of(self.declared)
        self._key = key_of(self._environment)
        self._appending = threading.Lock()
        start_server((__name__, *self.commits.preloaded))
        self._cells: dict[str, Cell] = {}
        notes: dict[str, str] = {}
        # Own cells come last, and replace those of other machines, of which only counts are used.
        stored = (entry.value for entry in self.store.entries)
        for cell in sorted(stored, key=self._is_own):
            if cell.problem == self.problem and cell.variant.partition("+")[2] == self.planner:
                if why := self._why_unused(cell):
                    notes.setdefault(cell.variant, f"not used: {why}")
                    continue
                self._cells[cell.variant] = cell
                notes.pop(cell.variant, "")
                if not self._is_own(cell):
                    cell.cpu_s = cell.wall_s = None
                    notes[cell.variant] = f"used without {ELSEWHERE}"
        self.notes.update(notes.values())

    def _is_own(self, cell: Cell) -> bool:
        return cell.environment.machine == self._environment.machine

    def _variant(self, commit: Point) -> str:
        return f"{commit.id}+{self.planner}" if self.planner else commit.id

    def _why_unused(self, cell: Cell) -> str:
        """Return why a stored cell does not count here; empty if it does."""
        wanted = structs.replace(self._key, machine="")
        why = difference(cell.key, wanted, self.declared.earlier)
        if why or cell.status == "failed":
            return why
        if self.repeat and not self._is_own(cell):
            return ELSEWHERE
        samples = cell.cpu_s.samples if cell.cpu_s else ()
        if len(samples) < self.repeat and max(samples, default=0) < LONG_CALL_S:
            return "fewer timed calls than wanted"
        return "no counts" if self.counted and not cell.counters else ""

    def run(self, commit: Point, *, own: bool = False) -> Run:
        """Run a commit, or reuse its stored cell.

        Without `own`, also reuse the cell of another commit with the same files.
        """
        tree = self._tree(commit)
        cell = self._cells.get(self._variant(commit))
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
        return self._variant(commit) in self._cells

    def run_all(
        self, commits: Sequence[Point], listen: Callable[[Run], None] = lambda run: None
    ) -> list[Run]:
        """Run commits in parallel and return their runs in the order of `commits`.

        The last commit always has its own run, so that a change outside the declared paths shows.
        """
        by_tree = {self._tree(commit): commit for commit in reversed(commits)}
        with ThreadPoolExecutor(self.jobs) as pool:
            for done in pool.map(self.run, reversed(by_tree.values())):
                listen(done)
        return [self.run(commit, own=commit is commits[-1]) for commit in commits]

    def _tree(self, commit: Point) -> str:
        return self.repository.tree(commit, self.commits.paths, self.commits.ignored)

    def _measured(self, commit: Point, tree: str) -> Cell:
        variant = self._variant(commit)
        facts = {"date": commit.date, "title": commit.title, "pull_request": commit.pull_request}
        cell = Cell(
            id=CellId(self.declared.library, variant, self.problem),
            reference=variant,
            status="ok",
            facts={TREE: tree, **facts},
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
                folder=folder,
            )
            stage = Stage("Planning", self.budget)
            answered = run(_outcomes, self.commits.shims, request, self.repeat, first=stage)
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
        cell.fingerprint = (counted or timed[0]).fingerprint
        if counted:
            cell.quality = counted.quality
            cell.counters = dict.fromkeys(self.declared.counters, 0) | counted.counters
        return cell


def _outcomes(
    shims: str, request: driving.Request, repeat: int, _: Report
) -> tuple[Outcome | None, list[Outcome]]:
    """Import a commit in a child process; count a call, if `warm_up`, then time `repeat` calls."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for standard in (1, 2):  # warnings of hundreds of commits would hide shardbench's messages
        os.dup2(nothing, standard)
    sys.path.insert(0, request.folder)
    if shims:
        import_module(shims).install()
    if request.warm_up:
        counted, timed = driving.counts(request), []
    else:
        counted, first = None, driving.times(request)
        if first.cpu_s >= LONG_CALL_S:
            return None, [first]
        timed = [first] if first.cpu_s >= FIRST_CALL_S else []  # others do work only done once
    timed += [driving.times(request) for _ in range(repeat - len(timed))]
    return counted, timed
