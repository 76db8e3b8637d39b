"""The declaration of a library with releases to measure."""

from dataclasses import dataclass
from pathlib import Path

from harness.model.quality import Quality


@dataclass(frozen=True, slots=True)
class Releases:
    """A library whose releases are measured, and what drives one of them in a child process.

    The driver is a file as `Upstream` takes it, with the requests `times` and `counts`. Both are
    given `workload`, as it is written in ids, and `topology`, the fields of a `Topology`. Both make
    one call, never the first one of a problem, and answer with `release`, the version that the
    child has loaded, `fingerprint` of the decision, `wall_s` and `cpu_s`, seconds of the call, and
    `phases`, CPU seconds by phase.
    `counts` adds what is counted in a call of its own and does not depend on the machine:
    `counters`, `quality` of the decision, and `calls`, which says by function how many calls it
    makes while the phase `profiled` runs.

    Attributes:
        library: its name on the package index.
        driver: the file.
        problems: ids of the problems that are measured unless others are asked for.
        profiled: the phase whose Python calls are counted.
        phases: all phases of `times`, in order.
        counters: all counters of `counts`, with what they say, the one for tables first.
        qualities: the figures in `quality`.
        by_hand: why the releases are not fetched from the index, as a whole sentence; empty where
            they are.
    """

    library: str
    driver: Path
    problems: tuple[str, ...]
    profiled: str
    phases: tuple[str, ...]
    counters: dict[str, str]
    qualities: tuple[Quality, ...] = ()
    by_hand: str = ""
