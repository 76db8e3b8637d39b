"""What `doctor`, `selftest`, `validate` and `calibrate` say of this machine."""

import json
import re
from pathlib import Path

import pytest

from harness.contract import read_machine
from harness.contract.registry import load_registry
from harness.measuring.environment import environment
from harness.measuring.selftest import SELFTESTS, last_selftests
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


def test_what_this_machine_resolves_is_said_written_and_quoted_later(shardbench):
    """Later measurements on this machine quote its last self-tests, past a damaged line."""
    chosen = ("--call", "0.003", "--way", "side-by-side", "--added", "10")
    short = ("--rounds", "1", "--seconds", "0.1", "--json", "selftest.json")
    code, printed, _ = shardbench("selftest", *short, *chosen)
    assert (code, printed.count("This machine resolves")) == (0, 1)
    assert "calls of 3 ms, side by side" in printed
    document = json.loads(Path("selftest.json").read_text())
    assert [list(tested["found"]) for tested in document["selftests"]] == [["10"]]
    assert document["environment"]["cores"] >= 1
    machine = environment(0).machine or ""
    with SELFTESTS.open("a") as file:
        file.write('{"machine": "torn')
    quoted = last_selftests(machine)
    assert [each.call_seconds for each in quoted] == [0.003]
    assert last_selftests("another") == []
    cell = "dimspec/path-cache@random[conversions=5]/dgx_h100:4"
    _, out, _ = shardbench("compare", cell, "--seconds", "0.1", "--details")
    assert quoted[0].sentence() in " ".join(out.split())


TINY = ("-w", "synthetic[tables=3,seed=4,memory=roomy]", "-n", "2", "--gib", "0.02")


@pytest.fixture
def small_kernels(monkeypatch):
    """Calibrate with small tables, each timed in one round; large ones take a minute."""
    design = "planners.embedding.measuring.coefficient_fit"
    monkeypatch.setattr(f"{design}._MOST_BYTES_OF_TABLES", 2.0**27)
    monkeypatch.setattr(f"{design}._MOST_BYTES", 1e8)
    monkeypatch.setattr("harness.estimates.timing._ROUNDS", 1)


@pytest.mark.long
def test_a_machine_is_calibrated_and_plans_are_measured_on_it(shardbench, small_kernels):
    """The calibrated machine is a file, and its estimate is compared with measurements."""
    assert shardbench("calibrate", "--share", "0.1", "-o", "machine.toml")[0] == 0
    machine = read_machine("machine.toml")
    value, low, high = machine.figures["fused.cached.forward.index"]
    assert low <= value <= high
    assert "torch" in machine.packages
    assert "held out" in machine.errors

    on = ("-t", "dgx_a100_80gb", "--machine", "machine.toml")
    options = (*on, "--plans", "4", "--seconds", "1")
    files = ("--json", "found.json", "--figure", "f.svg")
    code, printed, _ = shardbench("validate", *TINY, *options, *files)
    assert code == 0
    assert max(map(len, printed.splitlines())) <= 80
    assert "is in neither estimate nor measurement" in " ".join(printed.split())
    found = json.loads(Path("found.json").read_text())
    estimates = [each["estimate"] for each in found["agreements"]]
    assert estimates == ["torchrec", "calibrated"]
    assert any("machine" in each["name"] for each in found["decisions"])
    assert Path("f.svg").read_text().startswith("<?xml")

    assert not any("calibrated on" in note for note in found["notes"])
    text = Path("machine.toml").read_text()
    Path("other.toml").write_text(re.sub("(?m)^device = .*", 'device = "Other"', text))
    on = ("-t", "dgx_a100_80gb", "--machine", "other.toml", "--plans", "3", "--seconds", "1")
    assert shardbench("validate", *TINY, *on, "--json", "found.json")[0] == 0
    found = json.loads(Path("found.json").read_text())
    assert found["notes"][0].startswith("other.toml was calibrated on Other, and this is ")


@pytest.mark.long
def test_memory_is_counted_and_kept(shardbench):
    """Child processes count the bytes of each rank under each optimizer."""
    workload = "synthetic[tables=1,seed=4,weights=cpu,mib=4]"
    arguments = ("validate", "--memory", "-w", workload, "-t", "dgx_a100_80gb", "-n", "2")
    code, printed, _ = shardbench(*arguments, "--plans", "1", "--json", "found.json")
    assert code == 0
    assert max(map(len, printed.splitlines())) <= 80
    found = json.loads(Path("found.json").read_text())
    assert {rank["setting"] for rank in found["ranks"]} == {"sgd", "rowwise_adagrad", "adagrad"}
    for rank in found["ranks"]:
        measured, estimated = rank["whole"]["measured"], rank["whole"]["estimated"]
        assert abs(estimated["calibrated"] / measured - 1) < 0.05
        assert {"torchrec", "calibrated"} == set(estimated)
    (stored,) = Path("validations").glob("*.memory.jsonl")
    assert stored.read_bytes().count(b"\n") == len(found["ranks"])


@pytest.mark.long
def test_a_workload_that_cannot_be_measured_leaves_the_others(shardbench):
    """The exit code says that one was refused; without a machine, one estimate is compared."""
    tight = "synthetic[tables=4,seed=21,memory=tight]"
    other = TINY[1].replace("seed=4", "seed=5")
    options = ("-t", "dgx_a100_80gb", "--plans", "3", "--seconds", "1", "--json", "found.json")
    code, out, err = shardbench("validate", "-w", tight, *TINY, "-w", other, *options)
    assert code == 2
    assert "tight" in err
    assert "kernel 'fused' alone" in err
    assert "2 problems" in out
    found = json.loads(Path("found.json").read_text())
    assert [each["problem"] for each in found] == [f"{w}/dgx_a100_80gb:2" for w in (TINY[1], other)]
    for each in found:
        assert [agreement["estimate"] for agreement in each["agreements"]] == ["torchrec"]
        assert len(each["decisions"]) == 3
    kept = [json.loads(path.read_text()) for path in Path("validations").glob("*.json")]
    assert all(each in kept for each in found)
