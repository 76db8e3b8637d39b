"""`shardbench explain`, as a user calls it."""

import json
import re

import pytest

from shardbench.cli import main

CELL = "embedding/uniform@synthetic[tables=5,seed=1]/dgx_a100_80gb:4"


def call(capsys, *arguments: str) -> tuple[int, str, str]:
    code = 0
    try:
        main(["explain", *arguments])
    except SystemExit as ended:
        code = int(ended.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_cell_is_explained(capsys):
    code, out, _ = call(capsys, CELL, "--top", "1")
    assert code == 0
    assert out.startswith(CELL)
    for part in ("is the slowest", "What bounds the result", "HBM is fullest", "(now)"):
        assert part in out, part


def test_options_ask_the_same_and_files_hold_it(capsys, tmp_path):
    problem = ("-w", "synthetic[tables=5,seed=1]", "-t", "dgx_a100_80gb", "-n", "4")
    for suffix in ("json", "md"):
        path = tmp_path / f"why.{suffix}"
        options = ("--against", "certified", "--rank", "2", "-o", str(path))
        code, out, err = call(capsys, "embedding/uniform", *problem, *options)
        assert code == 0, err
        assert "is the slowest" in out
        assert f"why.{suffix}" in err.replace("\n", "")
    held = json.loads((tmp_path / "why.json").read_text())
    assert (held["format"], held["version"]) == ("shardbench-explanation", 1)
    assert (held["cell"], held["against"]) == (CELL, "certified")
    assert held["explanation"]["rank"]["rank"] == 2
    text = (tmp_path / "why.md").read_text()
    assert all(sentence.split(" ")[0] in text for sentence in held["sentences"])
    assert re.search(r"^\| table \| rows x dim \|", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("embedding@synthetic[tables=5]/dgx_a100_80gb:4",), "Name the variant to explain"),
        ((CELL, "--against", "uniform"), "another variant"),
        ((CELL, "--against", "certifed"), "did you mean certified"),
        ((CELL, "--rank", "4"), "ranks are from 0 to 3"),
        ((CELL, "--top", "0"), "at least 1"),
        ((CELL, "-o", "why.txt"), "must end in .md or .json"),
        ((CELL, "-o", "not-there/why.md"), "not a folder"),
        ((CELL, "-w", "synthetic"), "names the problem already"),
        (("dimspec/upstream@resnet50/dgx_h100:4",), "Unknown variant"),
    ],
)
def test_bad_input_gets_one_sentence(capsys, arguments, said):
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())
    assert "Traceback" not in err
