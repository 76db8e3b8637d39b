"""The parts of a record: each measures a study on one problem, commits, a profile or a table."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from harness.model.cell import Environment
from harness.model.declared import Amount
from harness.model.errors import ShardbenchError, UsageError, unknown
from harness.model.files import replace_file
from harness.model.ids import ProblemId
from harness.model.settings import Settings
from harness.record.declared import RecordedCommits, RecordedProfile, RecordedStudy, RecordedTable
from harness.series.commits import Runner
from harness.series.points import libraries
from harness.series.repository import Repository
from harness.store.cells import CellStore
from harness.store.keys import Key, Task, key_of, missing
from harness.store.lines import Entry
from harness.suites.sweep import resumed, sweep, tasks_of
from harness.topologies.lookup import placed_on

_LONGEST = 100  # of a reason

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
        is_long: whether its calls take minutes, so that it may run at the same time as another.
        is_measured: whether nothing is left to measure.
        gib: the memory that it needs.
        measure: measures it, and returns the outcome in a few words; raises ShardbenchError.
        order: its place among the parts of a record; the lowest comes first.
        package: the package of its family, whose sources decide whether it is stale.
    """

    name: str
    kind: str
    is_long: bool
    is_measured: bool
    gib: float
    measure: Callable[[Listener], str] = field(compare=False)
    order: int = 0
    package: str = ""


def study_parts(
    study: RecordedStudy, store: CellStore, find: Callable[[], Registry], stale: bool
) -> Iterator[RecordPart]:
    """Yield a part for each problem of a study; `find` must be importable in other processes."""
    settings, registry = study.settings(), find()
    # A record may be completed on another machine: each problem is measured on one of them.
    package = registry.find(study.family).package
    tasks = tasks_of(list(study.requests(registry)), settings, several=True, stale=stale)
    for request in resumed(tasks, store):
        name = f"{request.family.name}@{request.given}"

        def measure(listen: Listener, request: Request = request) -> str:
            outcomes = []
            for done in sweep([request], store, settings, listen, find):
                if done.refused:
                    raise UsageError(done.refused)
                for cell in done.cells:
                    why = f" ({cell.reason[:_LONGEST]})" if cell.reason else ""
                    outcomes.append(f"{cell.variant} {cell.status}{why}")
            return ", ".join(outcomes)

        yield RecordPart(
            name, "study", study.once, request.is_measured, study.gib, measure, study.order, package
        )


def commits_part(
    declared: RecordedCommits,
    store: CellStore,
    registry: Registry,
    repositories: Mapping[str, Path],
) -> RecordPart:
    """Return the part that runs commits; `repositories` has a clone for each library."""
    known = libraries(registry, "commits")
    if declared.library not in known:
        raise unknown("library with commits to measure,", declared.library, known)
    family, series = known[declared.library]
    problem = ProblemId.parse(declared.problem)
    topology = placed_on(family, problem.workload, problem.topology, problem.gpus)
    name = f"{declared.library}{'+' if declared.planner else ''}{declared.planner}@{problem}"
    if declared.counted:
        name += " counted"

    def runner() -> Runner:
        if declared.library not in repositories:
            raise ShardbenchError(
                f"The commits of {declared.library} need a clone: --repository "
                f"{declared.library}=PATH."
            )
        return Runner(
            series,
            Repository(repositories[declared.library]),
            problem,
            topology,
            store,
            declared.budget,
            declared.repeat,
            counted=declared.counted,
            planner=declared.planner,
        )

    def measure(_: Listener) -> str:
        running = runner()
        outcomes = []
        for commit in declared.commits.values():
            point = running.repository.commit(commit)
            run = running.run(point, own=True)
            outcomes.append(f"{point.name} {run.cell.status}")
        return ", ".join(outcomes)

    is_measured = False
    if declared.library in repositories:
        ready = runner()
        commits = map(ready.repository.commit, declared.commits.values())
        is_measured = all(map(ready.is_known, commits))
    is_long, gib = not declared.counted, declared.gib
    return RecordPart(name, "commits", is_long, is_measured, gib, measure, package=family.package)


def profile_part(
    declared: RecordedProfile,
    page: Path,
    runs: Sequence[Entry[MeasuredPart]],
    find: Callable[[], Registry],
    write_page: WritePage,
    stale: bool,
) -> RecordPart:
    """Return the part that writes a page of flame graphs; `runs` are the measured parts."""
    family = find().find(declared.family)
    problem = ProblemId.parse(declared.problem)
    topology = placed_on(family, problem.workload, problem.topology, problem.gpus)
    request = Request(family, problem.workload, topology, declared.variants)
    request.names()  # raises for an unknown variant
    name = profile_name(page)
    is_measured = page.exists() and _is_measured(runs, name, family, stale)

    def measure(listen: Listener) -> str:
        profiled = profile_variants(request, Settings(600.0), declared.seconds, listen, find)
        write_page(page, [profiled[name].profile for name in declared.variants], str(problem))
        return page.name

    return RecordPart(name, "profile", False, is_measured, 2.0, measure, package=family.package)


def table_part(
    declared: RecordedTable,
    file: Path,
    runs: Sequence[Entry[MeasuredPart]],
    registry: Registry,
    stale: bool,
) -> RecordPart:
    """Return the part that runs a script and writes its table; `runs` are the measured parts."""
    name = f"table {declared.name}"
    family = registry.find(declared.family)
    is_measured = file.exists() and _is_measured(runs, name, family, stale)

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

    return RecordPart(
        name, "table", False, is_measured, 2.0, measure, declared.order, family.package
    )


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


def _is_measured(
    runs: Sequence[Entry[MeasuredPart]], name: str, family: Family[Any, Any], stale: bool
) -> bool:
    """Return whether this code has measured a part; with `stale`, only the family's sources."""
    here = key_of(environment(0, family.package))
    wanted = Key(family=here.family) if stale else Key(code=here.code)
    return missing([Task(name, frozenset([name]), wanted)], runs)[0].is_complete


def profile_name(page: Path) -> str:
    """Return the name of the part that writes a page of flame graphs."""
    return f"profile {page.stem}"
