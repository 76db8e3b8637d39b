"""Declare a library's releases and commits, which are measured as a series over time."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.contract.recorder import Recorder
from harness.model.quality import Quality


@dataclass(frozen=True, slots=True)
class Driven:
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


@dataclass(frozen=True, slots=True)
class Releases:
    """The settings of a series that only releases need.

    Attributes:
        phases: all phases of a call, in order.
        by_hand: the reason why users must install the releases themselves, as a whole sentence;
            empty if they are fetched from the package index.
    """

    phases: tuple[str, ...]
    by_hand: str = ""


@dataclass(frozen=True, slots=True)
class Commits:
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
