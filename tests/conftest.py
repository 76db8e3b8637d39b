"""Settings for all tests: hypothesis without deadlines, marks for real releases, faster gc."""

import gc
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from harness.execution.upstream import Upstream, is_ready

gc.disable()  # while tests are imported, which allocates millions of objects that stay

# The toy families and other helpers, which child processes import too: they get this `sys.path`.
sys.path[:0] = [str(Path(__file__).parent / name) for name in ("harness", "reports", "faults")]

settings.register_profile("shardbench", deadline=None, derandomize=True, max_examples=50)
# pytest --hypothesis-profile=nightly: more examples, and others in every run.
settings.register_profile(
    "nightly", settings.get_profile("shardbench"), derandomize=False, max_examples=500
)
settings.load_profile("shardbench")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests of real releases as long; skip those with a release that is not installed."""
    for item in items:
        for mark in item.iter_markers("upstreams"):
            item.add_marker(pytest.mark.long)
            if missing := [release for release in mark.args if not is_ready(release)]:
                reason = f"{missing[0]} is not installed; make upstreams installs it."
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """Exclude all imported objects from garbage collection, which is faster without them."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module")
def upstreams(request: pytest.FixtureRequest) -> Iterator[dict[str, Upstream]]:
    """The releases in a module's RELEASES, each driven by the module's DRIVER."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(Upstream(name, request.module.DRIVER))
            for name in request.module.RELEASES
        }


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium."""
    from browser import chromium

    with chromium() as opened:
        yield opened
