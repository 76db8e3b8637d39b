"""Fixtures that run the asv suite without asv."""

from typing import Any

import pytest
from made_up_suite import Run, asv_benchmark, made_up, suite_of

from benchmarks import OUTLINE_FILE


@pytest.fixture(autouse=True)
def _outside_of_asv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OUTLINE_FILE, raising=False)


@pytest.fixture
def run() -> Run:
    """Return a function that runs a benchmark and returns the value in asv's results, or None."""
    suite = suite_of(made_up())["dice"]
    cache = suite().setup_cache()

    def shown(function: str, variant: str) -> Any:
        benchmark = asv_benchmark(suite, function, variant, cache)
        skipped = benchmark.do_setup()
        value = None if skipped else benchmark.do_run()
        benchmark.do_teardown()
        return None if value != value else value

    return shown
