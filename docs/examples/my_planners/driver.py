"""Runs a version of `my_library`; the harness times the calls and counts."""

from contextlib import contextmanager

import my_library

from harness.contract import Driven


def drive(workload, topology, planner):  # noqa: ARG001 - the contract's arguments
    """Build a problem, and say how the library plans it."""
    values = range(topology.gpus)

    def run(recorder):
        with recorder.phase("plan"):
            return my_library.plan(values)

    @contextmanager
    def observe(recorder):
        yield
        recorder.counters["numbers"] = len(values)

    return Driven(
        library=my_library,
        run=run,
        fingerprint=str,
        parts=lambda: {"plan": lambda: my_library.plan(values)},
        observe=observe,
    )
