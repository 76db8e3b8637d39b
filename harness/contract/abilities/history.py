"""The declaration of a library with commits to measure."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.model.quality import Quality


@dataclass(frozen=True, slots=True)
class History:
    """A library whose commits run from a checkout, and what drives one in a child process.

    The driver is a file whose `HANDLERS` has `commit`, a function from a request to an answer. It
    runs in a fork of a process that has imported `preloaded`, with the checkout first among its
    import paths; nothing of the library may be imported before. It is given `workload`,
    as it is written in ids, `topology`, the fields of a `Topology`, and `repeat`, how many calls to
    time. It answers with `imported_from`, the file that the library was imported from,
    `fingerprint` and `quality` of the decision, `counters`, `calls`, which says by part and by
    function how many calls the function makes, and `cpu_s`, a list of CPU seconds of calls.

    Attributes:
        library: its name on the package index.
        driver: the file.
        helpers: files that the driver imports and is made of; where one changes, what was counted
            before does not hold.
        package: the folder of the repository that is imported, and is all that is checked out.
        paths: the files and folders of the repository that decide; commits that touch none of
            them are not run.
        ignored: names of folders in `paths` that decide nothing, such as `tests`.
        problems: ids of the problems that are measured unless others are asked for.
        parts: the parts of a call whose calls are counted, with what they are; the calls of a part
            are the counter `PART_calls`.
        counters: all other counters, with what they say.
        qualities: the figures in `quality`.
        preloaded: modules that take long to import and are none of the library's.
        pull_requests: the address of a pull request, with `{number}` in it.
    """

    library: str
    driver: Path
    package: str
    paths: tuple[str, ...]
    problems: tuple[str, ...]
    parts: Mapping[str, str]
    counters: Mapping[str, str]
    qualities: tuple[Quality, ...] = ()
    ignored: tuple[str, ...] = ("tests",)
    preloaded: tuple[str, ...] = ()
    pull_requests: str = ""
    helpers: tuple[Path, ...] = ()

    @property
    def calls(self) -> dict[str, str]:
        """The counters of the parts' calls, with what they say."""
        return {f"{part}_calls": f"calls of {meaning}" for part, meaning in self.parts.items()}
