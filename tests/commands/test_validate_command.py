"""`shardbench validate` and `calibrate`: times, memory, topology files and refusals."""

import json
from pathlib import Path

import pytest
import torch

from harness.contract import read_machine

TINY = ("-w", "synthetic[tables=3,seed=4,memory=roomy]", "-n", "2", "--gib", "0.02")


@pytest.mark.long
def test_a_machine_is_calibrated_and_plans_are_measured_on_it(shardbench) -> None:
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


def test_plans_are_measured_on_a_machine_that_was_not_calibrated(shardbench) -> None:
    options = ("-t", "dgx_a100_80gb", "--plans", "3", "--seconds", "1")
    assert shardbench("validate", *TINY, *options, "--json", "found.json")[0] == 0
    found = json.loads(Path("found.json").read_text())
    assert [each["estimate"] for each in found["agreements"]] == ["torchrec"]
    assert len(found["decisions"]) == 3
    (stored,) = Path("validations").glob("*.json")
    assert json.loads(stored.read_text()) == found


@pytest.mark.long
def test_memory_is_counted_and_kept(shardbench) -> None:
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
def test_a_workload_that_cannot_be_measured_leaves_the_others(shardbench) -> None:
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


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("validate", *TINY, "-t", "dgx_a100_80gb", "--plans", "2"), "--plans must be from 3"),
        (("validate", *TINY, "-t", "dgx_a100_80gb", "--device", "tpu"), "must be cpu or cuda"),
        (("validate", *TINY, "-t", "dgx_a100_80gb", "--indices", "x"), "--indices must be uniform"),
        (("validate", *TINY, "-t", "dgx_a100_80gb", "--figure", "f.gif"), "must end in .svg"),
        (("validate", *TINY, "-t", "dgx_a100_80gb", "--seconds", "0"), "not in the range"),
        (("validate", "-w", "transformer", "-t", "dgx_h100", "-n", "4"), "Unknown workload"),
        (("validate", *TINY[:4], "-t", "dgx_h100", "--gib", "-1"), "not in the range"),
        (("validate", "--memory", *TINY, "--indices", "zipf"), "--memory has neither"),
        (("validate", "--memory", *TINY, "-t", "dgx_h100"), "--gib allows 0.02. Give it more"),
        pytest.param(
            ("validate", "--memory", *TINY[:4], "-t", "dgx_h100", "--device", "cuda"),
            "no CUDA dev",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
        (("calibrate", "--share", "0"), "not in the range"),
        (("calibrate", "-o", "machine.txt"), "must end in .toml"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], sentence: str, shardbench) -> None:
    code, _, said = shardbench(*arguments)
    assert code == 2
    assert sentence in said
    assert "Traceback" not in said
