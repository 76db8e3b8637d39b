"""Measure the parts of a record that are not measured yet."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from harness.contract import Family
from harness.contract.registry import Registry
from harness.execution.child import how_it_ended, run
from harness.execution.worker import Failed, Report, Stage, lift_limit
from harness.measuring.environment import environment
from harness.measuring.jobs import Event, Listener
from harness.measuring.profile.profiler import profile_variants
from harness.measuring.request import Request, request_on
from harness.model.errors import ShardbenchError, UsageError, unknown
from harness.model.files import replace_file
from harness.model.ids import ProblemId
from harness.model.machine import default_memory_gib
from harness.model.settings import Settings
from harness.series.points import Point, libraries
from harness.series.repository import Repository
from harness.series.running import Runner
from harness.store.cells import CellStore
from harness.store.keys import Key, difference, key_of
from harness.store.lines import Entry
from harness.suites.record import (
    MeasuredPart,
    Record,
    RecordedCommits,
    RecordedProfile,
    RecordedStudy,
    RecordedTable,
    profile_name,
)
from harness.suites.sweep import in_lanes, resumed, sweep, tasks_of
from harness.topologies.probe import used_gpu

LANES = 2
"""Long parts run two at a time: a call of minutes is hardly disturbed by another one."""

_SECONDS_TO_ASK = 120.0


@dataclass(frozen=True, slots=True)
class RecordPart:
    """A part of the record, and how to measure it.

    Attributes:
        name: names it in `runs.jsonl` and in progress.
        kind: `study`, `commits`, `profile` or `table`.
        is_measured: whether nothing is left to measure.
        measure: measures it, and returns the outcome in a few words; raises ShardbenchError.
        package: the package of its family, whose sources decide whether it is stale.
        order: its place among the parts of a record; the lowest comes first.
        is_long: whether its calls take minutes, so that it may run at the same time as another.
        gib: the memory that it needs.
        seconds: what it took, 0 before it was ever measured.
        outcome: what its measuring gave, in a few words.
    """

    name: str
    kind: str
    is_measured: bool
    measure: Callable[[Listener], str]
    package: str = ""
    order: int = 0
    is_long: bool = False
    gib: float = 2.0
    seconds: float = 0.0
    outcome: str = ""


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
class Recording:
    """Makes and measures the parts of a record.

    A part is measured if the present code has measured all its cells on one machine; with `stale`,
    other code has if the sources of the cells' family are the same.

    Args:
        registry: returns the known families; child processes import it by name.
        repositories: a clone for each library with commits.
        write_page: writes a page of flame graphs, from profiles and the problem's name.
    """

    record: Record
    registry: Callable[[], Registry]
    repositories: Mapping[str, Path]
    write_page: Callable[[Path, Sequence[Any], str], None]
    stale: bool = False

    def parts(self) -> list[RecordPart]:
        """Return the parts in their declared order; studies, commits, profiles, tables if equal."""
        suite = self.record.declared
        cells = CellStore(self.record.cells_file)
        commits = CellStore(self.record.commits_file)
        parts = [
            *(part for study in suite.study for part in self._of_study(study, cells)),
            *(self._of_commits(declared, commits) for declared in suite.commits),
            *map(self._of_profile, suite.profile),
            *map(self._of_table, suite.table),
        ]
        runs = self.record.runs()
        return [
            replace(part, seconds=runs[part.name].seconds if part.name in runs else 0.0)
            for part in sorted(parts, key=lambda part: part.order)
        ]

    def measure(
        self, parts: Sequence[RecordPart], listen: Callable[[RecordPart], Listener]
    ) -> Iterator[RecordPart]:
        """Measure parts: long ones first, two at a time, then the others one by one.

        Of the long ones, new ones begin first, then those that took longest in the last run, so
        that none is left alone at the end. One that needs more than half of the memory runs alone.
        A part that fails does not stop the others: its `outcome` says why it is not measured.
        """

        def run(part: RecordPart) -> RecordPart:
            started = time.monotonic()
            try:
                outcome, is_measured = part.measure(listen(part)), True
            except ShardbenchError as error:
                outcome, is_measured = f"not measured: {error}", False
            seconds = round(time.monotonic() - started, 1)
            return replace(part, outcome=outcome, is_measured=is_measured, seconds=seconds)

        def in_order() -> Iterator[RecordPart]:
            longest_first = sorted(parts, key=lambda part: -(part.seconds or math.inf))
            half = default_memory_gib() / 2
            # A study's child may have the installed library, which a commit must not: see `server`.
            for kind in dict.fromkeys(part.kind for part in parts):
                long = [part for part in longest_first if part.is_long and part.kind == kind]
                yield from in_lanes([part for part in long if part.gib <= half], run, LANES)
                yield from map(run, [part for part in long if part.gib > half])
            yield from map(run, [part for part in parts if not part.is_long])

        stored = self.record.run_store
        for part in in_order():
            if part.is_measured:
                here = environment(0, part.package)
                value = MeasuredPart(part.seconds, here, gpu=self.record.gpu)
                stored.add(Entry(part.name, str(key_of(here)), value))
            yield part

    def _of_study(self, study: RecordedStudy, store: CellStore) -> Iterator[RecordPart]:
        """Yield a part for each problem of a study."""
        settings, registry = study.settings(), self.registry()

        def measure(request: Request, listen: Listener) -> str:
            (done,) = sweep([request], store, settings, listen, self.registry)
            if done.refused:
                raise UsageError(done.refused)
            return done.outcome

        # A record may be completed on another machine: each problem is measured on one of them.
        tasks = tasks_of(list(study.requests(registry)), settings, several=True, stale=self.stale)
        for request in resumed(tasks, store):
            yield RecordPart(
                f"{study.family}@{request.given}",
                "study",
                request.is_measured,
                partial(measure, request),
                request.family.package,
                study.order,
                is_long=study.once,
                gib=study.gib,
            )

    def _of_commits(self, declared: RecordedCommits, store: CellStore) -> RecordPart:
        """Return the part that runs commits of a library."""
        library = declared.library
        known = libraries(self.registry(), "commits")
        if library not in known:
            raise unknown("library with commits to measure,", library, known)
        family, series = known[library]
        problem = ProblemId.parse(declared.problem)
        topology = request_on(family, problem).topology

        def ready() -> tuple[Runner, list[Point]]:
            if library not in self.repositories:
                raise ShardbenchError(
                    f"The commits of {library} need a clone: --repository {library}=PATH."
                )
            clone = Repository(self.repositories[library])
            limits = (declared.budget, declared.repeat)
            options: dict[str, Any] = {"counted": declared.counted, "planner": declared.planner}
            runner = Runner(series, clone, problem, topology, store, *limits, **options)
            return runner, [clone.commit(name) for name in declared.commits.values()]

        def measure(_: Listener) -> str:
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
            "commits",
            is_measured,
            measure,
            family.package,
            is_long=not declared.counted,
            gib=declared.gib,
        )

    def _of_profile(self, declared: RecordedProfile) -> RecordPart:
        """Return the part that writes a page of flame graphs."""
        family, page = self.registry().find(declared.family), self.record.page_of(declared)
        request = request_on(family, ProblemId.parse(declared.problem), declared.variants)

        def measure(listen: Listener) -> str:
            profiles = profile_variants(
                request, Settings(600.0), declared.seconds, listen, self.registry
            )
            self.write_page(page, list(profiles.values()), str(request.given))
            return page.name

        return self._of_file(profile_name(page), page, family, measure)

    def _of_table(self, declared: RecordedTable) -> RecordPart:
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
        runs = (entry for entry in self.record.run_store.entries if entry.id == name)
        is_measured = file.exists() and any(not difference(run.key, wanted) for run in runs)
        kind = name.partition(" ")[0]
        return RecordPart(name, kind, is_measured, measure, family.package, order)


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
    last = (done.stderr.strip() or "no message").splitlines()[-1].strip()
    how = "" if done.returncode == 2 else f"{declared.script} {how_it_ended(done.returncode)}: "
    raise ShardbenchError(f"{how}{last}")
