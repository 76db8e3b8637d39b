"""The declaration of a library with releases, commits or both to measure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.model.quality import Quality


@dataclass(frozen=True, slots=True)
class Releases:
    """The part of a series that only releases need.

    Attributes:
        phases: all phases that `times` answers with, in order.
        by_hand: why the releases are not fetched from the index, as a whole sentence; empty where
            they are.
    """

    phases: tuple[str, ...]
    by_hand: str = ""


@dataclass(frozen=True, slots=True)
class Commits:
    """The part of a series that only commits need.

    Attributes:
        package: the folder of the repository that is imported. Nothing else is checked out.
        paths: the files and folders of the repository that decide. Commits that touch none of them
            are not run.
        ignored: names of folders in `paths` that decide nothing, such as `tests`.
        shims: the name of a module. Its `install` adds what old commits lack, before the driver is
            loaded.
        preloaded: modules that take long to import and are none of the library's.
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
    """A library as a series of points: its releases, its commits, or both.

    The driver is a file that runs in a child process, which imports one release or one commit of
    the library. Its `HANDLERS` maps the requests `times` and `counts` to functions from a request
    to an answer. A request has `workload`, as it is written in ids, and `topology`, the fields of a
    `Topology`. Both make calls on a problem that the child has called before, since a first call
    differs from the others.

    `times` makes one call and answers with `release`, the version that the child has loaded
    (releases alone need it), `fingerprint` of the decision, `wall_s` and `cpu_s`, seconds of the
    call, and `phases`, CPU seconds by phase. `counts` answers with what does not depend on the
    machine: `imported_from`, the file that the library was imported from, `fingerprint` and
    `quality` of the decision, `counters`, and `calls`, the number of calls that each function
    makes, by part and by function. Its request also has `parts`, the names of the parts to count.
    A request may have `planner`, one of the names in `planners`, and `warm_up`, which is false if
    the first call is to be timed too, since it takes minutes.

    Attributes:
        library: its name on the package index.
        driver: the file. Stored counts hold until a module in its folder changes.
        problems: ids of the problems that are measured unless others are asked for; commits run on
            the first one.
        parts: parts of a call, with their meanings. The Python calls of each are counted, and make
            the counter `PART_calls`. Releases count the first part alone, which is also a phase.
        counters: all other counters with their meanings, the one for tables first.
        qualities: the figures in `quality`.
        earlier: codes of earlier versions of the driver (`environment.code` of a stored cell) that
            count and decide the same. Cells of theirs are not measured again.
        planners: the library's own ways to plan, with their meanings; the first one is used unless
            another is asked for.
        releases: set where releases can be measured.
        commits: set where commits can be measured.
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
        """The only part that releases count the calls of."""
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
