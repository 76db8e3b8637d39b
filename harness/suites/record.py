"""The record: a suite declared at the sizes of published claims, and its results in one folder.

`suite.toml` declares it. Cells of studies are in `cells.jsonl`, and those of commits of libraries
in `commits.jsonl`; profiles are pages in `profiles/`, and tables that scripts print are files in
`tables/`. `runs.jsonl` has a line for each measured part: its seconds, and the environment.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from harness.measuring.environment import environment
from harness.model.cell import Cell, Environment
from harness.model.declared import Amount, Name, checked
from harness.model.errors import UsageError
from harness.model.files import read_toml, to_json
from harness.model.ids import CellId, ProblemId
from harness.model.settings import SETUP_SECONDS, SamplingRule, Settings
from harness.store.cells import read_cells
from harness.store.lines import Store
from harness.suites.declared import SuiteStudy

_Positive = Annotated[float, Meta(gt=0)]


class RecordedStudy(SuiteStudy, frozen=True, forbid_unknown_fields=True):
    """A study with settings of its own; with `once` each variant is called once or twice.

    `gib` is the memory that a call needs. `order` is its place among all parts; the lowest comes
    first.
    """

    seconds: _Positive = 20.0
    budget: _Positive = 300.0
    once: bool = False
    gib: _Positive = 2.0
    order: int = 0

    def settings(self) -> Settings:
        """Return the settings to measure with."""
        rule = SamplingRule(seconds=self.seconds, once=self.once)
        return Settings(self.budget, rule, max(SETUP_SECONDS, self.budget))


class RecordedCommits(Struct, frozen=True, forbid_unknown_fields=True):
    """Commits of a library by label, each timed `repeat` times on one problem, counted, or both."""

    library: Name
    problem: Name
    commits: Annotated[dict[str, Name], Meta(min_length=1)]
    planner: str = ""
    counted: bool = False
    repeat: Annotated[int, Meta(ge=0)] = 2
    budget: _Positive = 3600.0
    gib: _Positive = 2.0


class RecordedProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """A page of flame graphs: of a variant, or of two and their difference."""

    family: Name
    problem: Name
    variants: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=2)]
    seconds: _Positive = 4.0


class RecordedTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of Markdown that a script prints, for at most `budget` seconds.

    `script` is its path from the root of the repository, and `family` what it measures.
    """

    script: Name
    family: Name
    arguments: tuple[str, ...] = ()
    budget: _Positive = 3600.0
    order: int = 0

    @property
    def name(self) -> str:
        """The base name of the script and of its table."""
        return Path(self.script).stem


class RecordedSuite(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a record's `suite.toml`; `highlights` are the cells to show first."""

    highlights: tuple[Name, ...] = ()
    study: tuple[RecordedStudy, ...] = ()
    commits: tuple[RecordedCommits, ...] = ()
    profile: tuple[RecordedProfile, ...] = ()
    table: tuple[RecordedTable, ...] = ()


class MeasuredPart(Struct, frozen=True, omit_defaults=True):
    """One measured part of the record: how long it took, and the code that measured it.

    `commit` is the commit of shardbench in lines whose environment lacks it. `gpu` is the name of
    the GPU that it was measured on, empty without one.
    """

    seconds: Amount
    environment: Environment = Environment()
    commit: str | None = None
    gpu: str = ""


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

        In the suite of a device, `cpu` or `cuda` with the name of its GPU, `{device}` stands for
        the device, and the results of each machine are in a folder of its own below.
        """
        path = folder / "suite.toml"
        text = to_json(read_toml(path))
        if device and "{device}" not in text:
            raise UsageError(f"{path} has no {{device}} in it, so it takes no --device.")
        if "{device}" in text and not device:
            raise UsageError(f"{path} measures a device; add --device cuda or --device cpu.")
        filled = msgspec.json.decode(text.replace("{device}", device))
        if device:
            name = re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-") or "cpu"
            folder /= f"{name}-{environment(0).machine}"
        return cls(folder, checked(filled, RecordedSuite, str(path)), gpu)

    @classmethod
    def of_gpus(cls, folder: Path) -> list["Record"]:
        """Return the record of each machine that measured the suite in a folder on a GPU.

        Results that were measured on a CPU, which try the suite out, are left out.
        """
        records = []
        for path in sorted(folder.glob("*/runs.jsonl")):
            record = replace(cls.read(folder, "cuda"), folder=path.parent)
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
        """Return the last run of each part, by the part's name."""
        return {entry.id: entry.value for entry in self.run_store.entries}


def profile_name(page: Path) -> str:
    """Return the name of the part that writes a page of flame graphs."""
    return f"profile {page.stem}"
