"""The record: a suite declared at the sizes of published claims, measured into one folder.

`suite.toml` declares it. Studies are measured into `cells.jsonl`, commits of libraries into
`commits.jsonl`, and profiles become pages in `profiles/`. `runs.jsonl` has a line for each part
that was measured: its seconds, and the environment.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins

from harness.contract.registry import Registry
from harness.measuring.environment import environment
from harness.measuring.monitor import Listener
from harness.measuring.profiling import profile_variants
from harness.measuring.request import Request
from harness.model.cell import Cell, Claim, Environment
from harness.model.declared import Amount, Name, checked
from harness.model.errors import ShardbenchError, UsageError, unknown
from harness.model.files import read_file
from harness.model.ids import CellId, ProblemId
from harness.model.machine import default_memory_gib
from harness.model.settings import SETUP_SECONDS, SamplingRule, Settings
from harness.series.commits import Runner
from harness.series.points import libraries
from harness.series.repository import Repository
from harness.store.results import append_lines, read_cells, to_json
from harness.suites.expectations import read_toml
from harness.suites.suite_file import SuiteStudy
from harness.suites.sweep import Site, resumed, sweep
from harness.topologies.lookup import placed_on

_LANES = 2  # long calls run two at a time: a call of minutes is hardly disturbed by another one
_Seconds = Annotated[float, Meta(gt=0)]
_Gib = Annotated[float, Meta(gt=0)]


class RecordedStudy(SuiteStudy, frozen=True, forbid_unknown_fields=True):
    """A study with settings of its own; with `once` each variant is called a single time.

    `gib` is the memory that a call needs; see `Record.measure`.
    """

    seconds: _Seconds = 20.0
    budget: _Seconds = 300.0
    once: bool = False
    gib: _Gib = 2.0

    def settings(self) -> Settings:
        """Return the settings to measure with."""
        rule = SamplingRule(seconds=self.seconds, once=self.once)
        return Settings(self.budget, rule, max(SETUP_SECONDS, self.budget))


class RecordedCommits(Struct, frozen=True, forbid_unknown_fields=True):
    """Commits of a library, each timed `repeat` times on one problem, or counted.

    `gib` is the memory that a call needs; see `Record.measure`.
    """

    library: Name
    problem: Name
    commits: Annotated[tuple[Name, ...], Meta(min_length=1)]
    planner: str = ""
    counted: bool = False
    repeat: Annotated[int, Meta(ge=0)] = 2
    budget: _Seconds = 3600.0
    gib: _Gib = 2.0


class RecordedProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """A page of flame graphs: of a variant, or of two and their difference."""

    family: Name
    problem: Name
    variants: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=2)]
    seconds: _Seconds = 4.0


class RecordedClaim(Struct, frozen=True, forbid_unknown_fields=True):
    """A published change, and the cells of the record that reproduce it.

    Attributes:
        name: the claim in a few words.
        source: the address of its publication.
        before: the cell that stands for the library before the change.
        after: the cell that stands for it after the change.
        published: the published figures, if there are any.
        counter: the counter that explains the factor.
        counted_before: the cell of `counter` before the change, e.g. on a smaller problem; `before`
            if empty.
        counted_after: the same after the change.
        remark: further explanation, as whole sentences.
    """

    name: Name
    source: Name
    before: Name
    after: Name
    published: Claim | None = None
    counter: str = ""
    counted_before: str = ""
    counted_after: str = ""
    remark: str = ""


class RecordedSystem(Struct, frozen=True, forbid_unknown_fields=True):
    """A library: its main claim, what is left in today's release, and our variant against that.

    Attributes:
        name: the library, as in the overview of reports.
        claim: the name of its claim.
        today: the cell of today's release.
        ours: the cell of our variant on the same problem.
        counter: work that today's release repeats.
        counted: the cell with that counter.
        sufficient: the cell with the sufficient count, if the family declares none.
        remark: further explanation, as whole sentences.
    """

    name: Name
    claim: Name
    today: Name
    ours: Name
    counter: str = ""
    counted: str = ""
    sufficient: str = ""
    remark: str = ""


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    """The document of a record."""

    study: tuple[RecordedStudy, ...] = ()
    commits: tuple[RecordedCommits, ...] = ()
    profile: tuple[RecordedProfile, ...] = ()
    claim: tuple[RecordedClaim, ...] = ()
    system: tuple[RecordedSystem, ...] = ()


class Run(Struct, frozen=True):
    """One measured part of the record: `part` names it, `seconds` is how long it took."""

    part: Name
    seconds: Amount
    environment: Environment = Environment()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the record, and how to measure it.

    Attributes:
        name: names it in `runs.jsonl` and in progress.
        kind: `study`, `commits` or `profile`.
        is_long: whether its calls take minutes, so that it may run at the same time as another.
        is_measured: whether nothing is left to measure.
        gib: the memory that it needs.
        measure: measures it, and returns the outcome in a few words; raises ShardbenchError.
    """

    name: str
    kind: str
    is_long: bool
    is_measured: bool
    gib: float
    measure: Callable[[Listener], str] = field(compare=False)


WritePage = Callable[[Path, Sequence[Any], str], None]


@dataclass(frozen=True, slots=True)
class Record:
    """A folder with the declared suite and everything measured of it.

    Raises UsageError where the declaration is malformed.
    """

    folder: Path
    declared: _File

    @classmethod
    def read(cls, folder: Path) -> "Record":
        """Read the declaration in a folder; raises UsageError."""
        path = folder / "suite.toml"
        return cls(folder, checked(read_toml(path), _File, str(path)))

    @property
    def cells_file(self) -> Path:
        """The cells of studies."""
        return self.folder / "cells.jsonl"

    @property
    def commits_file(self) -> Path:
        """The cells of commits."""
        return self.folder / "commits.jsonl"

    @property
    def runs_file(self) -> Path:
        """The measured parts, with their durations."""
        return self.folder / "runs.jsonl"

    def page_of(self, profile: RecordedProfile) -> Path:
        """Return the page of flame graphs of a profile."""
        cell = CellId(
            profile.family, "-against-".join(profile.variants), ProblemId.parse(profile.problem)
        )
        return self.folder / "profiles" / f"{cell.file_stem}.html"

    def cells(self) -> dict[CellId, Cell]:
        """Return the last cell of each id, of studies and of commits."""
        files = (path for path in (self.cells_file, self.commits_file) if path.exists())
        return {cell.id: cell for path in files for cell in read_cells(path)}

    def runs(self) -> dict[str, Run]:
        """Return the last run of each part."""
        if not self.runs_file.exists():
            return {}
        path = self.runs_file
        lines = filter(None, read_file(path).decode().splitlines())
        found = [checked(json.loads(line), Run, str(path)) for line in lines]
        return {run.part: run for run in found}

    def parts(
        self,
        registry: Registry,
        repositories: Mapping[str, Path],
        write_page: WritePage,
        stale: bool = False,
    ) -> list[Part]:
        """Return the parts of the record.

        A part is measured if the cells were measured by the present code on this machine; with
        `stale` if only the sources of the cells' families are the same.

        Args:
            registry: the known families.
            repositories: a clone for each library with commits.
            write_page: writes a page of flame graphs, from profiles and the problem's name.
            stale: as above.
        """
        return [
            *(
                part
                for study in self.declared.study
                for part in _studies(self, study, registry, stale)
            ),
            *(_commits(self, commits, registry, repositories) for commits in self.declared.commits),
            *(
                _profile(self, profile, registry, write_page, stale)
                for profile in self.declared.profile
            ),
        ]

    def measure(
        self,
        parts: Sequence[Part],
        listen: Callable[[Part], Listener],
        ended: Callable[[Part, str, float], None],
    ) -> None:
        """Measure parts: long ones first, two at a time, then the others one by one.

        Two long parts run at the same time only if both fit into memory. `ended` gets each part
        with its outcome and seconds. A part that fails does not stop the others.
        """
        lock = threading.Lock()

        def run(part: Part) -> None:
            started = time.monotonic()
            try:
                outcome = part.measure(listen(part))
            except ShardbenchError as error:
                outcome = f"not measured: {error}"
                keeps = False
            else:
                keeps = True
            seconds = time.monotonic() - started
            with lock:
                if keeps:
                    line = Run(part.name, round(seconds, 1), environment(0))
                    append_lines(self.runs_file, [to_json(to_builtins(line))])
                ended(part, outcome, seconds)

        waiting = [part for part in parts if part.is_long]
        running: dict[Future[None], float] = {}
        pool = ThreadPoolExecutor(_LANES)  # an interrupt must not wait for its threads
        while waiting or running:
            free = default_memory_gib() - sum(running.values())
            for part in list(waiting):
                if len(running) < _LANES and (not running or part.gib <= free):
                    waiting.remove(part)
                    running[pool.submit(run, part)] = part.gib
                    free -= part.gib
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                del running[done]
                done.result()
        for part in parts:
            if not part.is_long:
                run(part)


def _studies(
    record: Record, study: RecordedStudy, registry: Registry, stale: bool
) -> Iterator[Part]:
    settings = study.settings()
    site = Site(environment(0, registry.find(study.family).package), by_family=stale)
    requests = list(study.requests(registry))
    for request in resumed(requests, record.cells_file, settings, site):
        name = f"{request.family.name}@{request.given}"

        def measure(listen: Listener, request: Request = request) -> str:
            outcomes = []
            for done in sweep([request], record.cells_file, settings, listen):
                if done.refused:
                    raise UsageError(done.refused)
                outcomes += [f"{cell.variant} {cell.status}" for cell in done.cells]
            return ", ".join(outcomes)

        yield Part(name, "study", study.once, request.is_measured, study.gib, measure)


def _commits(
    record: Record,
    declared: RecordedCommits,
    registry: Registry,
    repositories: Mapping[str, Path],
) -> Part:
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
            record.commits_file,
            declared.budget,
            declared.repeat,
            counted=declared.counted,
            planner=declared.planner,
        )

    def measure(_: Listener) -> str:
        running = runner()
        outcomes = []
        for commit in declared.commits:
            point = running.repository.commit(commit)
            run = running.run(point, own=True)
            outcomes.append(f"{point.name} {run.cell.status}")
        return ", ".join(outcomes)

    is_measured = False
    if declared.library in repositories:
        ready = runner()
        is_measured = all(ready.is_known(ready.repository.commit(c)) for c in declared.commits)
    return Part(name, "commits", not declared.counted, is_measured, declared.gib, measure)


def _profile(
    record: Record,
    declared: RecordedProfile,
    registry: Registry,
    write_page: WritePage,
    stale: bool,
) -> Part:
    family = registry.find(declared.family)
    problem = ProblemId.parse(declared.problem)
    topology = placed_on(family, problem.workload, problem.topology, problem.gpus)
    request = Request(family, problem.workload, topology, declared.variants)
    page = record.page_of(declared)
    name = f"profile {page.stem}"
    here = environment(0, family.package)
    last = record.runs().get(name)
    same = last is not None and (
        last.environment.family_code == here.family_code
        if stale
        else last.environment.code == here.code
    )

    def measure(listen: Listener) -> str:
        profiled = profile_variants(request, Settings(600.0), declared.seconds, listen)
        write_page(page, [profiled[name].profile for name in declared.variants], str(problem))
        return page.name

    return Part(name, "profile", False, same and page.exists(), 2.0, measure)
