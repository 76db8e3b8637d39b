"""Time and count calls of one release or commit, in a child process that imports it."""

import runpy
import time
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import msgspec

from harness.contract.abilities import Driven
from harness.contract.recorder import Recorder, collection_off, count_calls
from harness.model.errors import ShardbenchError
from harness.model.ids import WorkloadSpec
from harness.model.topology import Topology
from harness.series.points import CALLS


class Request(msgspec.Struct, frozen=True):
    """What to measure: a problem, with the path of the library's driver.

    Attributes:
        driver: the driver's file.
        workload: the workload, in the form that ids use.
        topology: the machines.
        parts: the parts of a call whose Python calls are counted.
        planner: one of the library's planners; its default if empty.
        warm_up: whether a new problem is called once before it is measured.
        folder: where the library must be imported from; anywhere if empty.
    """

    driver: str
    workload: str
    topology: Topology
    parts: tuple[str, ...]
    planner: str = ""
    warm_up: bool = True
    folder: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """What a call decides: with its seconds if it was timed, else with its quality and counters."""

    fingerprint: str
    wall_s: float = 0.0
    cpu_s: float = 0.0
    phases: dict[str, float] = {}
    quality: dict[str, float] = {}
    counters: dict[str, int] = {}


@cache
def _driven(request: Request) -> Driven:
    drive = runpy.run_path(request.driver)["drive"]
    workload = WorkloadSpec.parse(request.workload)
    driven: Driven = drive(workload, request.topology, request.planner)
    file = str(driven.library.__file__)
    if request.folder and not Path(file).is_relative_to(request.folder):
        raise ShardbenchError(f"It was not imported, but {file}")
    if request.warm_up:
        driven.renew()
        driven.run(Recorder())
    return driven


def times(request: Request) -> Outcome:
    """Make one call, in seconds of this process."""
    driven = _driven(request)
    recorder = Recorder(time.process_time)
    driven.renew()
    # A long call that copies tensors needs the garbage collector to stay within memory.
    with collection_off() if request.warm_up else nullcontext():
        wall, cpu = time.perf_counter(), time.process_time()
        decision = driven.run(recorder)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Outcome(driven.fingerprint(decision), wall, cpu, dict(recorder.phases))


def counts(request: Request) -> Outcome:
    """Make a call with counters, then count the Python calls of each part in a call of its own.

    The counters have each part's calls in total (`PART_calls`), and by calling function.
    """
    driven = _driven(request)
    recorder = Recorder()
    driven.renew()
    with driven.observe(recorder):
        decision = driven.run(recorder)
    counters = dict(recorder.counters)
    parts = driven.parts()
    before: dict[str, int] = {}
    for part in request.parts:
        driven.renew()
        _, made = count_calls(parts[part])
        left = {name: count - before.get(name, 0) for name, count in made.items()}
        calls = {name: count for name, count in left.items() if count > 0}
        counters[f"{part}_calls"] = sum(calls.values())
        counters |= {f"{CALLS}{part} {name}": count for name, count in calls.items()}
        before = made
    quality = dict(driven.quality(decision))
    return Outcome(driven.fingerprint(decision), quality=quality, counters=counters)


HANDLERS = {
    "times": lambda request: msgspec.to_builtins(times(msgspec.convert(request, Request))),
    "counts": lambda request: msgspec.to_builtins(counts(msgspec.convert(request, Request))),
}
"""Answer the requests to an upstream, which are JSON objects."""
