"""Collecting garbage is quick here, and counted."""

import gc

import pytest


@pytest.fixture(autouse=True)
def collections(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Make collecting garbage quick here, and count it."""
    collected: list[bool] = []

    def collect() -> int:
        collected.append(gc.isenabled())
        return 0

    monkeypatch.setattr(gc, "collect", collect)
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 1)
    return collected
