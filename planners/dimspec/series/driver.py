"""Drive a commit of ColossalAI's conversions, in a child process that imports it."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from colossalai.tensor import shape_consistency

from harness.contract import Driven, Recorder, Topology, WorkloadSpec
from planners.dimspec.problem import stream_of
from planners.dimspec.upstream.running import counting, forget
from planners.dimspec.upstream.stream import answers_of, converter


def drive(workload: WorkloadSpec, topology: Topology, _: str) -> Driven:
    """Return a stream of conversions on a topology, with an empty cache of paths in each call."""
    convert = converter(stream_of(workload, topology))

    @contextmanager
    def observe(recorder: Recorder) -> Iterator[None]:
        with counting() as counters:
            yield
        recorder.counters.update(counters, searches=counters["conversions"])

    def fingerprint(decision: tuple[list[Any], list[float]]) -> str:
        return hashlib.sha256(json.dumps(answers_of(decision[0])).encode()).hexdigest()[:16]

    return Driven(
        library=shape_consistency,
        run=lambda _: convert(),
        fingerprint=fingerprint,
        parts=lambda: {"conversion": convert},
        observe=observe,
        quality=lambda decision: {"reported_millions": float(sum(decision[1])) / 1e6},
        renew=forget,
    )
