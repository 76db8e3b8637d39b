"""Declare a library's releases and commits, which are measured as a series over time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.model.quality import Quality


@dataclass(frozen=True, slots=True)
class Releases:
    """The settings of a series that only releases need.

    Attributes:
        phases: all phases in the answers to `times`, in order.
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
    the library. Its `HANDLERS` maps the requests `times` and `counts` to functions from a request
    to an answer. A request has `workload`, in the form that ids use, and `topology`, the fields of
    a `Topology`. Both handlers call a new problem once before they measure, because a first call
    differs from later calls.

    `times` makes one call and answers with `release`, the version that the child has loaded (only
    needed for releases), `fingerprint` of the decision, `wall_s` and `cpu_s`, seconds of the call,
    and `phases`, CPU seconds by phase. `counts` answers with figures that do not depend on the
    machine: `imported_from`, the file that the library was imported from, `fingerprint` and
    `quality` of the decision, `counters`, and `calls`, the number of calls that each function
    makes, by part and by function. Its request also has `parts`, the names of the parts to count.
    A request may have `planner`, one of the names in `planners`, and `warm_up`, which is false if
    the first call is to be timed too, since it takes minutes.

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
