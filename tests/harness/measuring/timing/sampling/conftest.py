"""A fixture that replaces garbage collection by a counter."""

import gc

import pytest


@pytest.fixture(autouse=True)
def collections(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Replace `gc.collect`; return a list with an entry per call: whether gc was enabled."""
    collected: list[bool] = []

    def collect() -> int:
        collected.append(gc.isenabled())
        return 0

    monkeypatch.setattr(gc, "collect", collect)
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 1)
    return collected
