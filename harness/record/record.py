"""The record: a suite declared at the sizes of published claims, measured into one folder.

`suite.toml` declares it. Studies are measured into `cells.jsonl`, commits of libraries into
`commits.jsonl`; profiles become pages in `profiles/`, and tables that scripts print are files in
`tables/`. `runs.jsonl` has a line for each measured part: its seconds, and the environment.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

from harness.contract.registry import Registry
from harness.measuring.environment import environment
from harness.measuring.jobs import Listener
from harness.model.cell import Cell
from harness.model.errors import ShardbenchError
from harness.model.ids import CellId, ProblemId
from harness.model.machine import default_memory_gib
from harness.record.declared import RecordedProfile, RecordedSuite, read_declared
from harness.record.device import RecordedDevice
from harness.record.parts import (
    MeasuredPart,
    RecordPart,
    WritePage,
    commits_part,
    profile_part,
    study_parts,
    table_part,
)
from harness.series.repository import Repository
from harness.store.cells import CellStore, read_cells
from harness.store.keys import key_of
from harness.store.lines import Entry, Store

LANES = 2
"""Long parts run two at a time: a call of minutes is hardly disturbed by another one."""


@dataclass(frozen=True, slots=True)
class Record:
    """A declared suite, and the folder with everything measured of it.

    `gpu` is the name of the GPU that it is measured on, empty without one.
    """

    folder: Path
    declared: RecordedSuite
    gpu: str = ""

    @classmethod
    def read(cls, folder: Path, device: RecordedDevice | None = None) -> "Record":
        """Read the declaration in a folder; raises UsageError.

        The suite of a device has the results of each machine in a folder of its own below.
        """
        declared = read_declared(folder / "suite.toml", device.kind if device else "")
        if device is None:
            return cls(folder, declared)
        return cls(folder / device.folder, declared, device.gpu)

    @classmethod
    def of_gpus(cls, folder: Path) -> list["Record"]:
        """Return the record of each machine that measured the suite in a folder on a GPU.

        Results that were measured on a CPU, which try the suite out, are left out.
        """
        found = []
        for path in sorted(folder.glob("*/runs.jsonl")):
            record = cls(path.parent, read_declared(folder / "suite.toml", "cuda"))
            gpus = [run.gpu for run in record.runs().values()]
            if gpus and all(gpus):
                found.append(replace(record, gpu=gpus[-1]))
        return found

    @property
    def run_store(self) -> Store[MeasuredPart]:
        """The measured parts, with their durations."""
        return Store(self.folder / "runs.jsonl", "run", MeasuredPart)

    @property
    def cells_file(self) -> Path:
        """The cells of studies."""
        return self.folder / "cells.jsonl"

    @property
    def commits_file(self) -> Path:
        """The cells of commits."""
        return self.folder / "commits.jsonl"

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
        cells, commits_store = CellStore(self.cells_file), CellStore(self.commits_file)
        suite, runs = self.declared, self.run_store.entries
        studies = (
            part for study in suite.study for part in study_parts(study, cells, registry, stale)
        )
        commits = (
            commits_part(known, commits_store, registry(), repositories) for known in suite.commits
        )
        profiles = (
            profile_part(known, self.page_of(known), runs, registry, write_page, stale)
            for known in suite.profile
        )
        tables = (
            table_part(known, self.table_of(known.name), runs, registry(), stale)
            for known in suite.table
        )
        return sorted([*studies, *commits, *profiles, *tables], key=lambda part: part.order)

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
        lock, commit = threading.Lock(), _commit()
        stored = self.run_store

        def run(part: RecordPart) -> None:
            started = time.monotonic()
            keeps = True
            try:
                outcome = part.measure(listen(part))
            except ShardbenchError as error:
                outcome, keeps = f"not measured: {error}", False
            seconds = time.monotonic() - started
            with lock:
                if keeps:
                    took = round(seconds, 1)
                    here = environment(0, part.package)
                    measured = MeasuredPart(took, here, commit, self.gpu)
                    stored.add(Entry(part.name, str(key_of(here)), measured))
                ended(part, outcome, seconds)

        last = {name: done.seconds for name, done in self.runs().items()}
        longest_first = sorted(parts, key=lambda part: -last.get(part.name, math.inf))
        # Children of a study may have the installed library, which a commit must not: see `server`.
        for kind in dict.fromkeys(part.kind for part in parts):
            _in_lanes([part for part in longest_first if part.is_long and part.kind == kind], run)
        for part in parts:
            if not part.is_long:
                run(part)


def _in_lanes(waiting: list[RecordPart], run: Callable[[RecordPart], None]) -> None:
    """Run parts, two at a time if both fit into memory."""
    running: dict[Future[None], float] = {}
    pool = ThreadPoolExecutor(LANES)  # an interrupt must not wait for its threads
    while waiting or running:
        free = default_memory_gib() - sum(running.values())
        for part in list(waiting):
            if len(running) < LANES and (not running or part.gib <= free):
                waiting.remove(part)
                running[pool.submit(run, part)] = part.gib
                free -= part.gib
        for done in wait(running, return_when=FIRST_COMPLETED).done:
            del running[done]
            done.result()


def _commit() -> str | None:
    """Return the commit of this checkout of shardbench, None without one or without git."""
    folder = Path(__file__).parents[2]
    try:
        return Repository(folder).commit("HEAD").name if (folder / ".git").exists() else None
    except ShardbenchError:
        return None
