"""The record: a suite declared at the sizes of published claims, measured into one folder.

`suite.toml` declares it. Studies are measured into `cells.jsonl`, commits of libraries into
`commits.jsonl`; profiles become pages in `profiles/`, and tables that scripts print are files in
`tables/`. `runs.jsonl` has a line for each measured part: its seconds, and the environment.
"""

import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from harness.contract import Family
from harness.contract.registry import Registry
from harness.execution.child import how_it_ended, run
from harness.execution.worker import Failed, Report, Stage, lift_limit
from harness.measuring.environment import environment
from harness.measuring.jobs import Event, Listener
from harness.measuring.profile.profiler import profile_variants
from harness.measuring.request import Request
from harness.model.cell import Cell, Environment
from harness.model.declared import Amount
from harness.model.errors import ShardbenchError, UsageError, unknown
from harness.model.files import replace_file
from harness.model.ids import CellId, ProblemId
from harness.model.machine import default_memory_gib
from harness.model.settings import Settings
from harness.series.points import Point, libraries
from harness.series.repository import Repository
from harness.series.running import Runner
from harness.store.cells import CellStore, read_cells
from harness.store.keys import Key, Task, key_of, missing
from harness.store.lines import Entry, Store
from harness.suites.declared import (
    RecordedCommits,
    RecordedProfile,
    RecordedStudy,
    RecordedSuite,
    RecordedTable,
    read_recorded,
    request_on,
)
from harness.suites.sweep import in_lanes, resumed, sweep, tasks_of
from harness.topologies.probe import used_gpu

LANES = 2
"""Long parts run two at a time: a call of minutes is hardly disturbed by another one."""

_LONGEST = 100  # of a reason
_SECONDS_TO_ASK = 120.0
_GIB = 2.0  # of a part that declares none

WritePage = Callable[[Path, Sequence[Any], str], None]


class MeasuredPart(Struct, frozen=True, omit_defaults=True):
    """One measured part of the record: how long it took, and the code that measured it.

    `commit` is the commit of shardbench, None outside of a checkout. `gpu` is the name of the GPU
    that it was measured on, empty without one.
    """

    seconds: Amount
    environment: Environment = Environment()
    commit: str | None = None
    gpu: str = ""


@dataclass(frozen=True, slots=True)
class RecordPart:
    """A part of the record, and how to measure it.

    Attributes:
        name: names it in `runs.jsonl` and in progress.
        kind: `study`, `commits`, `profile` or `table`.
        is_measured: whether nothing is left to measure.
        measure: measures it, and returns the outcome in a few words; raises ShardbenchError.
        is_long: whether its calls take minutes, so that it may run at the same time as another.
        gib: the memory that it needs.
        order: its place among the parts of a record; the lowest comes first.
        package: the package of its family, whose sources decide whether it is stale.
    """

    name: str
    kind: str
    is_measured: bool
    measure: Callable[[Listener], str] = field(compare=False)
    is_long: bool = False
    gib: float = _GIB
    order: int = 0
    package: str = ""


def gpu_of(device: str) -> str:
    """Return the name of this machine's GPU for `cuda`, empty for `cpu`; raises UsageError."""
    if device == "cpu":
        return ""
    if device != "cuda":
        raise UsageError(f"--device must be cpu or cuda, not '{device}'.")
    gpu = run(_used_gpu, first=Stage("Asking torch for its GPU", _SECONDS_TO_ASK))
    if isinstance(gpu, Failed):
        raise UsageError(f"--device cuda needs a GPU: {gpu.reason.rstrip('.')}.")
    return str(gpu)


def _used_gpu(_: Report) -> str:
    return used_gpu()


@dataclass(frozen=True, slots=True)
class Record:
    """A declared suite, and the folder with everything measured of it.

    `gpu` is the name of the GPU that it is measured on, empty without one.
    """

    folder: Path
    declared: RecordedSuite
    gpu: str = ""

    @classmethod
    def read(cls, folder: Path, device: str = "", gpu: str = "") -> "Record":
        """Read the declaration in a folder; raises UsageError.

        The suite of a device, `cpu` or `cuda` with the name of its GPU, has the results of each
        machine in a folder of its own below.
        """
        declared = read_recorded(folder / "suite.toml", device)
        if device:
            name = re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-") or "cpu"
            folder /= f"{name}-{environment(0).machine}"
        return cls(folder, declared, gpu)

    @classmethod
    def of_gpus(cls, folder: Path) -> list["Record"]:
        """Return the record of each machine that measured the suite in a folder on a GPU.

        Results that were measured on a CPU, which try the suite out, are left out.
        """
        records = []
        for path in sorted(folder.glob("*/runs.jsonl")):
            record = cls(path.parent, read_recorded(folder / "suite.toml", "cuda"))
            gpus = [run.gpu for run in record.runs().values()]
            if gpus and all(gpus):
                records.append(replace(record, gpu=gpus[-1]))
        return records

    @property
    def cells_file(self) -> Path:
        """The cells of studies."""
        return self.folder / "cells.jsonl"

    @property
    def commits_file(self) -> Path:
        """The cells of commits."""
        return self.folder / "commits.jsonl"

    @property
    def run_store(self) -> Store[MeasuredPart]:
        """The measured parts, with their durations."""
        return Store(self.folder / "runs.jsonl", "run", MeasuredPart)

    def page_of(self, profile: RecordedProfile) -> Path:
        """Return the page of flame graphs of a profile."""
        cell = CellId(
            profile.family, "-against-".join(profile.variants), ProblemId.parse(profile.problem)
        )
        return self.folder / "profiles" / f"{cell.file_stem}.html"

    def table_of(self, name: str) -> Path:
        """Return the file of a table that a script prints."""
        return self.folder / "tables" / f"{name}.md"

    def cells(self) -> dict[CellId, Cell]:
        """Return the last cell of each id, of studies and of commits."""
        files = (path for path in (self.cells_file, self.commits_file) if path.exists())
        return {cell.id: cell for path in files for cell in read_cells(path)}

    def runs(self) -> dict[str, MeasuredPart]:
        """Return the last run of each part."""
        return {entry.id: entry.value for entry in self.run_store.entries}

    def parts(
        self,
        registry: Callable[[], Registry],
        repositories: Mapping[str, Path],
        write_page: WritePage,
        stale: bool = False,
    ) -> list[RecordPart]:
        """Return the parts of the record in their declared order.

        Of equal order, studies come first, then commits, profiles and tables. A part is measured
        if the present code has measured all its cells on one machine; with `stale`, other code has
        if the sources of the cells' family are the same.

        Args:
            registry: returns the known families; child processes import it by name.
            repositories: a clone for each library with commits.
            write_page: writes a page of flame graphs, from profiles and the problem's name.
            stale: as above.
        """
        parts = _Parts(self, registry, repositories, write_page, stale)
        cells, commits = CellStore(self.cells_file), CellStore(self.commits_file)
        suite = self.declared
        found = [
            *(part for study in suite.study for part in parts.of_study(study, cells)),
            *(parts.of_commits(declared, commits) for declared in suite.commits),
            *map(parts.of_profile, suite.profile),
            *map(parts.of_table, suite.table),
        ]
        return sorted(found, key=lambda part: part.order)

    def measure(
        self,
        parts: Sequence[RecordPart],
        listen: Callable[[RecordPart], Listener],
        ended: Callable[[RecordPart, str, float], None],
    ) -> None:
        """Measure parts: long ones first, two at a time, then the others one by one.

        Of the long ones, new ones begin first, then those that took longest in the last run, so
        that none is left alone at the end. Two run at the same time only if both fit into memory.
        `ended` gets each part with its outcome and seconds. A part that fails does not stop the
        others.
        """
        lock, commit, stored = threading.Lock(), _commit(), self.run_store

        def run(part: RecordPart) -> None:
            started, measured = time.monotonic(), True
            try:
                outcome = part.measure(listen(part))
            except ShardbenchError as error:
                outcome, measured = f"not measured: {error}", False
            seconds = time.monotonic() - started
            with lock:
                if measured:
                    here = environment(0, part.package)
                    value = MeasuredPart(round(seconds, 1), here, commit, self.gpu)
                    stored.add(Entry(part.name, str(key_of(here)), value))
                ended(part, outcome, seconds)

        def fits(part: RecordPart, running: Sequence[RecordPart]) -> bool:
            return part.gib <= default_memory_gib() - sum(other.gib for other in running)

        last = {name: done.seconds for name, done in self.runs().items()}
        longest_first = sorted(parts, key=lambda part: -last.get(part.name, math.inf))
        # Children of a study may have the installed library, which a commit must not: see `server`.
        for kind in dict.fromkeys(part.kind for part in parts):
            long = [part for part in longest_first if part.is_long and part.kind == kind]
            list(in_lanes(long, run, LANES, fits))
        for part in parts:
            if not part.is_long:
                run(part)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Makes the parts of a record; for its fields, see `Record.parts`."""

    record: Record
    registry: Callable[[], Registry]
    repositories: Mapping[str, Path]
    write_page: WritePage
    stale: bool

    def of_study(self, study: RecordedStudy, store: CellStore) -> Iterator[RecordPart]:
        """Yield a part for each problem of a study."""
        settings, registry = study.settings(), self.registry()
        package = registry.find(study.family).package

        def measure(request: Request, listen: Listener) -> str:
            outcomes = []
            for done in sweep([request], store, settings, listen, self.registry):
                if done.refused:
                    raise UsageError(done.refused)
                for cell in done.cells:
                    why = f" ({cell.reason[:_LONGEST]})" if cell.reason else ""
                    outcomes.append(f"{cell.variant} {cell.status}{why}")
            return ", ".join(outcomes)

        # A record may be completed on another machine: each problem is measured on one of them.
        tasks = tasks_of(list(study.requests(registry)), settings, several=True, stale=self.stale)
        for request in resumed(tasks, store):
            yield RecordPart(
                f"{study.family}@{request.given}",
                *("study", request.is_measured, partial(measure, request)),
                is_long=study.once,
                gib=study.gib,
                order=study.order,
                package=package,
            )

    def of_commits(self, declared: RecordedCommits, store: CellStore) -> RecordPart:
        """Return the part that runs commits of a library."""
        library = declared.library
        known = libraries(self.registry(), "commits")
        if library not in known:
            raise unknown("library with commits to measure,", library, known)
        family, series = known[library]
        problem = ProblemId.parse(declared.problem)
        topology = request_on(family, problem).topology

        def ready() -> tuple[Runner, list[Point]]:
            clone = Repository(self.repositories[library])
            limits = (declared.budget, declared.repeat)
            options: dict[str, Any] = {"counted": declared.counted, "planner": declared.planner}
            runner = Runner(series, clone, problem, topology, store, *limits, **options)
            return runner, [clone.commit(name) for name in declared.commits.values()]

        def measure(_: Listener) -> str:
            if library not in self.repositories:
                raise ShardbenchError(
                    f"The commits of {library} need a clone: --repository {library}=PATH."
                )
            runner, commits = ready()
            runs = [runner.run(commit, own=True) for commit in commits]
            return ", ".join(f"{run.point.name} {run.cell.status}" for run in runs)

        is_measured = False
        if library in self.repositories:
            runner, commits = ready()
            is_measured = all(map(runner.is_known, commits))
        planner = f"+{declared.planner}" if declared.planner else ""
        return RecordPart(
            f"{library}{planner}@{problem}{' counted' if declared.counted else ''}",
            *("commits", is_measured, measure),
            is_long=not declared.counted,
            gib=declared.gib,
            package=family.package,
        )

    def of_profile(self, declared: RecordedProfile) -> RecordPart:
        """Return the part that writes a page of flame graphs."""
        family, page = self.registry().find(declared.family), self.record.page_of(declared)
        request = request_on(family, ProblemId.parse(declared.problem), declared.variants)
        request.names()  # raises for an unknown variant

        def measure(listen: Listener) -> str:
            profiles = profile_variants(
                request, Settings(600.0), declared.seconds, listen, self.registry
            )
            self.write_page(page, list(profiles.values()), str(request.given))
            return page.name

        return self._of_file(profile_name(page), page, family, measure)

    def of_table(self, declared: RecordedTable) -> RecordPart:
        """Return the part that runs a script and writes its table."""
        file = self.record.table_of(declared.name)

        def measure(listen: Listener) -> str:
            listen(Event("running", declared.script, 0, 1))
            stage = Stage(declared.script, declared.budget)
            # All processes of a script end with it, so that they cannot disturb the next part.
            printed = run(_printed, declared, Path.cwd(), dict(os.environ), first=stage)
            if isinstance(printed, Failed):
                raise ShardbenchError(printed.reason)
            lines = [line for line in printed.splitlines() if line.startswith("|")]
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_file(file, "\n".join(lines) + "\n")
            return file.name

        family = self.registry().find(declared.family)
        return self._of_file(f"table {declared.name}", file, family, measure, declared.order)

    def _of_file(
        self,
        name: str,
        file: Path,
        family: Family[Any, Any],
        measure: Callable[[Listener], str],
        order: int = 0,
    ) -> RecordPart:
        """Return a part that writes a file; it is measured if this code has written the file."""
        here = key_of(environment(0, family.package))
        wanted = Key(family=here.family) if self.stale else Key(code=here.code)
        task = Task(name, frozenset([name]), wanted)
        (stored,) = missing([task], self.record.run_store.entries)
        is_measured = file.exists() and stored.is_complete
        kind = name.partition(" ")[0]
        return RecordPart(name, kind, is_measured, measure, order=order, package=family.package)


def profile_name(page: Path) -> str:
    """Return the name of the part that writes a page of flame graphs."""
    return f"profile {page.stem}"


def _printed(declared: RecordedTable, folder: Path, variables: dict[str, str], _: Report) -> str:
    """Return the output of a script; raises ShardbenchError with its last line of errors.

    A script that refuses to run ends with exit code 2, and its last line is a sentence.
    """
    # A script runs as from a shell: what this child process inherits would make tests fail.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    lift_limit()
    command = [sys.executable, declared.script, *declared.arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=variables
    )
    if not done.returncode:
        return done.stdout
    lines = [line for line in map(str.strip, done.stderr.splitlines()) if line]
    last = lines[-1] if lines else "no message"
    how = "" if done.returncode == 2 else f"{declared.script} {how_it_ended(done.returncode)}: "
    raise ShardbenchError(f"{how}{last}")


def _commit() -> str | None:
    """Return the commit of this checkout of shardbench, None without one or without git."""
    folder = Path(__file__).parents[2]
    try:
        return Repository(folder).commit("HEAD").name if (folder / ".git").exists() else None
    except ShardbenchError:
        return None
