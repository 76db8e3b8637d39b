"""Benchmarks of one commit: a figure for each counter and quality that its library declares.

`benchmarks.asv_environments` names the commit. It runs as `shardbench history` runs it, in a child
process from its checkout, and its stored cell is used where there is one.
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
    """Run the commit that asv asks for, unless its cell is stored."""
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
    """Exact figures of one plan. A commit that does not run has none."""

    timeout = 600

    def setup_cache(self) -> Figures:
        """Return all figures; the decision is a number that changes with it."""
        cell = run(repeat=0)
        if cell.status != "ok":
            raise RuntimeError(cell.reason)
        decision = crc32(str(cell.fingerprint).encode())
        return {**cell.counters, **cell.quality, DECISION: decision}


class Times:
    """CPU seconds of one plan, which are asked for by their name."""

    timeout = 600

    def track_cpu_s(self) -> dict[str, Any]:
        """Return a sample for each call."""
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
