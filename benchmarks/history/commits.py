"""Benchmarks of one commit: a figure for each counter and quality that its library declares.

`benchmarks.asv_commits` says which commit. It runs as `shardbench history` runs it, in a child
process from its checkout, and what is stored there is not run again.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

from harness.contract import History, UsageError
from harness.contract.family import load
from harness.contract.registry import load_registry
from harness.model.ids import ProblemId
from harness.series.repository import Repository
from harness.series.running import Run, Runner
from harness.series.steps import DECISION, figures_of
from harness.store.lock import hold
from harness.topologies.lookup import placed_on

Figures = Mapping[str, float]

_TIMED = 8


def run(repeat: int) -> Run:
    """Run the commit that asv asks for, unless it is stored."""
    library = os.environ["SHARDBENCH_LIBRARY"]
    declared = {
        each.library: (family, each)
        for family in load_registry().families
        if (each := load(family.abilities.history))
    }
    if library not in declared:
        raise UsageError(f"asv's project must be one of {', '.join(declared)}, not {library}.")
    family, history = declared[library]
    problem = ProblemId.parse(history.problems[0])
    topology = placed_on(family, problem.workload, problem.topology, problem.gpus)
    repository = Repository(Path(os.environ["SHARDBENCH_REPOSITORY"]))
    results = Path(os.environ["SHARDBENCH_RESULTS"])
    commit = repository.commit(os.environ["SHARDBENCH_COMMIT"])
    with hold(results):
        return Runner(history, repository, problem, topology, results, repeat=repeat).run(commit)


class Counts:
    """Exact figures of one plan. A commit that does not run has none."""

    timeout = 600

    def setup_cache(self) -> Figures:
        """Return all figures; the decision is a number that changes with it."""
        cell = run(repeat=0).cell
        if cell.status != "ok":
            raise RuntimeError(cell.reason)
        decision = crc32(str(cell.fingerprint).encode())
        return {**cell.counters, **cell.quality, DECISION: decision}


class Times:
    """CPU seconds of one plan, which are asked for by their name."""

    timeout = 600

    def track_cpu_s(self) -> dict[str, Any]:
        """Return a sample for each call."""
        cell = run(repeat=_TIMED).cell
        if cell.cpu_s is None:
            raise RuntimeError(cell.reason)
        return {"samples": list(cell.cpu_s.samples), "number": 1}


def _add_counts(history: History) -> None:
    units = {each.name: each.unit for each in history.qualities}
    for name, meaning in {**figures_of(history), DECISION: "changes with the decision"}.items():

        def track(_: Counts, figures: Figures, name: str = name) -> float:
            return figures.get(name, float("nan"))

        track.__doc__ = meaning
        vars(track).update(unit=units.get(name) or meaning, pretty_name=name)
        setattr(Counts, f"track_{name}", track)


if "SHARDBENCH_LIBRARY" in os.environ:
    for _family in load_registry().families:
        _history = load(_family.abilities.history)
        if _history and _history.library == os.environ["SHARDBENCH_LIBRARY"]:
            _add_counts(_history)
else:  # asv runs this project's own suite
    del Counts, Times
