"""Optional abilities of a family: topologies and series of a library, and all that it can name."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from msgspec import Struct

from harness.contract.estimates import BenchOptions, Workbench
from harness.contract.planning import Explaining, Planning
from harness.contract.recorder import Recorder
from harness.contract.workloads import Imported, ImportRequest, Inventory, Names
from harness.model.ids import WorkloadSpec
from harness.model.quality import Quality
from harness.model.topology import Topology


class TopologyTrap(Struct, frozen=True):
    """A misleading value in a topology's `column`: its effect, and the text to write instead."""

    column: str
    wrong: str
    write: str


class TopologyRow(Struct, frozen=True):
    """A topology as a user wrote it, before validation: the text of each field, by column.

    `where` is its name in messages. If the user wrote a library's arguments, `library` describes
    them, and `gpus` is the number of GPUs in them.
    """

    where: str
    texts: Mapping[str, str]
    library: "LibraryTopology | None" = None
    gpus: int | None = None


class LibraryTopology(Struct, frozen=True):
    """The arguments of a library that describe machines, for `shardbench topology check`.

    Attributes:
        library: the library's name, for messages.
        read: parses a JSON document of the library's arguments; the second parameter is the
            document's name in errors. Raises UsageError.
        traps: finds values that mislead only this library. It takes a row of its arguments, the
            values of the valid columns, and the number of GPUs, if known.
        arguments: by column, the library's argument; it plans `gpus_per_host` as one fast domain.
        defaults: by column, the library's default.
    """

    library: str
    read: Callable[[bytes, str], TopologyRow]
    traps: Callable[[TopologyRow, Mapping[str, Any], int | None], Iterator[TopologyTrap]]
    arguments: Mapping[str, str] = {}
    defaults: Mapping[str, str] = {}


class Driven(Struct, frozen=True):
    """A problem, built with the release or commit of a library that a child process imports.

    A new problem is called once before it is measured, because a first call differs from later
    ones; only commits whose call takes minutes, and is not counted, are not.

    Attributes:
        library: the library's module.
        run: makes one call, records its phases, and returns the decision.
        fingerprint: returns the hash of a decision.
        parts: returns, by part of a call, a function that makes its Python calls, which are
            counted; calls that the part before it makes are left out.
        observe: a context in which `run` fills the counters of a recorder.
        quality: returns the figures of a decision.
        renew: called before each call, untimed.
    """

    library: ModuleType
    run: Callable[[Recorder], Any]
    fingerprint: Callable[[Any], str]
    parts: Callable[[], Mapping[str, Callable[[], Any]]]
    observe: Callable[[Recorder], AbstractContextManager[Any]] = lambda recorder: nullcontext()
    quality: Callable[[Any], Mapping[str, float]] = lambda decision: {}
    renew: Callable[[], Any] = lambda: None


class Releases(Struct, frozen=True):
    """The settings of a series that only releases need.

    Attributes:
        phases: all phases of a call, in order.
        by_hand: the reason why users must install the releases themselves, as a whole sentence;
            empty if they are fetched from the package index.
    """

    phases: tuple[str, ...]
    by_hand: str = ""


class Commits(Struct, frozen=True):
    """The settings of a series that only commits need.

    Attributes:
        package: the folder of the repository to import. Nothing else is checked out.
        paths: the files and folders of the repository that can affect the planner. Commits that
            change none of them are not run.
        ignored: names of folders in `paths` that cannot affect it, such as `tests`.
        shims: the name of a module, or empty. Its `install` runs before the driver is loaded and
            adds the APIs that old commits need but this environment lacks.
        preloaded: modules outside the library that take long to import.
        pull_requests: the address of a pull request, with `{number}` in it.
    """

    package: str
    paths: tuple[str, ...]
    ignored: tuple[str, ...] = ("tests",)
    shims: str = ""
    preloaded: tuple[str, ...] = ()
    pull_requests: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """A library to measure at a series of versions: its releases, its commits, or both.

    The driver is a file that runs in a child process, which imports one release or one commit of
    the library. Its function `drive(workload, topology, planner)` builds a problem: it gets a
    `WorkloadSpec`, a `Topology` and the name of one of the `planners`, and returns a `Driven`.

    Attributes:
        library: the library's name on the package index.
        driver: the driver's file. Stored counts are valid until a module in its folder changes.
        problems: ids of the problems to measure by default; commits run on the first one.
        parts: parts of a call, with their meanings. The Python calls of each part are counted, in
            the counter `PART_calls`. Releases only count the first part, which is also a phase.
        counters: all other counters with their meanings; tables show the first one.
        qualities: the figures in `quality`.
        earlier: codes of earlier versions of the driver (`environment.code` of a stored cell) that
            give the same counts and decisions. Their cells are not measured again.
        planners: the library's own planners, with their meanings; the first one is the default.
        releases: None if releases cannot be measured.
        commits: None if commits cannot be measured.
    """

    library: str
    driver: Path
    problems: tuple[str, ...]
    parts: Mapping[str, str]
    counters: Mapping[str, str]
    qualities: tuple[Quality, ...] = ()
    earlier: tuple[str, ...] = ()
    planners: Mapping[str, str] = field(default_factory=dict)
    releases: Releases | None = None
    commits: Commits | None = None

    @property
    def first_part(self) -> str:
        """The first part; releases count the calls of no other part."""
        return next(iter(self.parts))

    @property
    def calls(self) -> dict[str, str]:
        """The counters of the parts' calls, with their meanings."""
        return {f"{part}_calls": f"calls of {meaning}" for part, meaning in self.parts.items()}

    @property
    def figures(self) -> dict[str, str]:
        """All counters and qualities, with their meanings."""
        qualities = {quality.name: quality.meaning for quality in self.qualities}
        return {**self.calls, **self.counters, **qualities}


P = TypeVar("P")
D = TypeVar("D")

Capturing = Callable[[Names], AbstractContextManager[Callable[[], Mapping[str, Any] | None]]]


@dataclass(frozen=True, slots=True)
class Abilities(Generic[P, D]):
    """Optional abilities of a family beyond comparing variants: objects, or names "module:name".

    Attributes:
        planning: the settings of `shardbench plan`.
        explain: the function for `shardbench explain`; it explains a decision.
        explain_table: the function for `shardbench explain --table`; it explains the placement of
            one table.
        capture: a context manager for `shardbench.capture`. It takes the translator of table names,
            and yields a function that returns the content captured so far as plain JSON types, or
            None if another process captures it. The function raises ShardbenchError for content
            that cannot be written.
        inventory: the function for `shardbench workload show`; it returns a workload's parts, and
            raises UsageError if they depend on the topology and none is given.
        importing: the function for `shardbench workload import`; it reads files of other programs,
            and raises UsageError if a source cannot be used.
        series: the library with the releases of `shardbench releases` and the commits of
            `shardbench history`.
        machines: a function that returns the device of each calibrated machine whose estimate can
            judge decisions, by the machine's name.
        figures: a function that computes figures common to all decisions on a problem, such as a
            proven bound. It takes the known figures, stores them for `quality`, computes the
            others and returns all. A comparison calls it once, before any variant runs.
        measuring: makes the workbench that measures decisions on this machine and calibrates it.
        topology: the library's arguments for a topology and the values that mislead it, for
            `shardbench topology check` and `show`.
    """

    planning: Planning[P, D] | str | None = None
    explain: Explaining[P, D] | str | None = None
    explain_table: Explaining[P, D] | str | None = None
    capture: Capturing | str | None = None
    inventory: Callable[[WorkloadSpec, Topology | None], Inventory] | str | None = None
    importing: Callable[[ImportRequest], Imported] | str | None = None
    series: Series | str | None = None
    topology: LibraryTopology | str | None = None
    measuring: Callable[[BenchOptions], Workbench[P]] | str | None = None
    machines: Callable[[], Mapping[str, str]] | str | None = None
    figures: Callable[[P, Mapping[str, float]], Mapping[str, float]] | str | None = None


def load(named: Any) -> Any:
    """Import the object that the string "module" or "module:name" names; return others as is."""
    if not isinstance(named, str):
        return named
    module, _, name = named.partition(":")
    imported = importlib.import_module(module)
    return getattr(imported, name) if name else imported
