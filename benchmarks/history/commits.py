"""Benchmarks of one commit: one for each counter and quality that its library declares.

`benchmarks.asv_environments` passes the commit in environment variables. Like `shardbench history`,
the benchmarks run it in a child process from a checkout, unless its cell is stored.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

from harness.contract import Series, UsageError
from harness.contract.registry import load_registry
from harness.model.cell import Cell
from harness.model.ids import ProblemId
from harness.series.commits import Runner
from harness.series.points import libraries
from harness.series.repository import Repository
from harness.series.steps import DECISION
from harness.store.lock import hold
from harness.topologies.lookup import placed_on

Figures = Mapping[str, float]

_TIMED = 8
_LIBRARY = os.environ.get("SHARDBENCH_LIBRARY", "")
_KNOWN = libraries(load_registry(), "commits")


def run(repeat: int) -> Cell:
    """Return the cell of the commit that asv benchmarks; run the commit if it has none."""
    if _LIBRARY not in _KNOWN:
        raise UsageError(f"asv's project must be one of {', '.join(_KNOWN)}, not {_LIBRARY}.")
    family, declared = _KNOWN[_LIBRARY]
    problem = ProblemId.parse(declared.problems[0])
    topology = placed_on(family, problem.workload, problem.topology, problem.gpus)
    repository = Repository(Path(os.environ["SHARDBENCH_REPOSITORY"]))
    results = Path(os.environ["SHARDBENCH_RESULTS"])
    commit = repository.commit(os.environ["SHARDBENCH_COMMIT"])
    with hold(results):
        runner = Runner(declared, repository, problem, topology, results, repeat=repeat)
        return runner.run(commit).cell


class Counts:
    """Exact counters, qualities and decision of one plan. A failed commit has no results."""

    timeout = 600

    def setup_cache(self) -> Figures:
        """Return all figures by name; the decision's figure is a checksum of its fingerprint."""
        cell = run(repeat=0)
        if cell.status != "ok":
            raise RuntimeError(cell.reason)
        decision = crc32(str(cell.fingerprint).encode())
        return {**cell.counters, **cell.quality, DECISION: decision}


class Times:
    """CPU seconds of one plan. The Makefile leaves them out; use `asv run --bench Times`."""

    timeout = 600

    def track_cpu_s(self) -> dict[str, Any]:
        """Return the CPU seconds of each timed call, as asv samples."""
        cell = run(repeat=_TIMED)
        if cell.cpu_s is None:
            raise RuntimeError(cell.reason)
        return {"samples": list(cell.cpu_s.samples), "number": 1}


def _add_counts(declared: Series) -> None:
    units = {quality.name: quality.unit for quality in declared.qualities}
    for name, meaning in {**declared.figures, DECISION: "changes with the decision"}.items():

        def track(_: Counts, figures: Figures, name: str = name) -> float:
            return figures.get(name, float("nan"))

        track.__doc__ = meaning
        vars(track).update(unit=units.get(name) or meaning, pretty_name=name)
        setattr(Counts, f"track_{name}", track)


if not _LIBRARY:  # asv runs this project's own suite
    del Counts, Times
elif _LIBRARY in _KNOWN:
    _add_counts(_KNOWN[_LIBRARY][1])
