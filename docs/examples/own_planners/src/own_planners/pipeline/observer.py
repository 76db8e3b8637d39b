"""Counts the work of any variant, from outside: the variants know nothing of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from harness.contract import Progress, Recorder
from own_planners.pipeline import variants
from own_planners.pipeline.chain import Chain


@contextmanager
def observe(recorder: Recorder) -> Iterator[None]:
    """Record counters, phases and progress of the call inside."""
    count = recorder.counters
    recorder.progress = lambda: Progress(count["sums"], None, "sums")
    bounding = {
        name: recorder.timed("bounding", getattr(variants, name))
        for name in ("least_by_programme", "least_by_bisection")
    }
    with (
        mock.patch.object(Chain, "cost", recorder.counted("sums", Chain.cost)),
        mock.patch.object(variants, "end_of", recorder.counted("lookups", variants.end_of)),
        mock.patch.multiple(variants, cut=recorder.timed("cutting", variants.cut), **bounding),
    ):
        yield
