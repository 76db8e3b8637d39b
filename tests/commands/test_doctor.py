"""The statements of `shardbench doctor` are true, and the commands that it names exist."""

import json
from pathlib import Path

import pytest

from harness.contract.registry import load_registry
from harness.model.machine import installed_versions


@pytest.fixture
def doctor(shardbench):
    """Return a function that runs the command and returns its standard output."""

    def run(*arguments: str) -> str:
        code, out, _ = shardbench("doctor", "--seconds", "0.1", *arguments)
        assert code == 0
        return out

    return run


def test_it_says_what_is_installed_and_what_is_skipped(doctor, tmp_path):
    """Versions, releases, GPUs, noise, and the variants that lack something."""
    (tmp_path / "upstreams" / "releases" / "torchrec-1.5.0").mkdir(parents=True)
    out = doctor("--json", "found.json")
    found = json.loads(Path("found.json").read_text())
    assert found["environment"]["packages"] == installed_versions()
    assert found["releases"]["torchrec"] == ["installed", "1.5.0"]
    skipped = {name for skip in found["skipped"] for name in skip["names"]}
    missing = {
        f"{family.name}/{variant.name}"
        for family in load_registry().families
        for variant in family.variants.values()
        if variant.missing()
    }
    assert missing <= skipped
    assert not {name for name in skipped - missing if "/" in name}
    assert bool(found["gpus"]) == (found["no_gpu"] == "")
    assert found["noise"]["pairs"] > 0
    assert [name for name in (*missing, *installed_versions().values()) if name not in out] == []
    assert max(map(len, out.splitlines())) <= 80


def test_each_thing_that_is_skipped_has_its_remedy(doctor, monkeypatch):
    """A need that several variants share has one command."""
    monkeypatch.setattr("harness.contract.variants._is_installed", lambda name: name != "numba")
    skipped = json.loads(doctor("--json"))["skipped"]
    (numba,) = [each for each in skipped if each["needs"] == "numba"]
    assert numba["command"] == "pip install numba"
    assert "embedding/compiled" in numba["names"]
    upstreams = [each for each in skipped if each["command"] == "make upstreams"]
    assert all("/" in name for each in upstreams for name in each["names"])
