"""Hostile command lines end with one sentence and exit code 2, before any work is done."""

import pytest
from hostile import is_one_sentence

from shardbench.cli import main

PROBLEM = ("-w", "micro[ops=10,inserts=2]", "-t", "dgx_h100", "-n", "4")
COMPARE = ("compare", "reshard", *PROBLEM)
ODD = (
    *("[", "'", "[red]x[/red]", "\x1b[31m", "a\nb", "\udcff", "n" * 10_000, "#.csv", ".csv", "@"),
    *("a.csv#b", "../x.csv", "{{ 7*7 }}"),
)


@pytest.fixture
def shardbench(capsys, monkeypatch, tmp_path):
    """Return a function that runs a command in an empty folder and returns its error message."""
    monkeypatch.chdir(tmp_path)

    def refused(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (2, "")
        assert "Traceback" not in err
        return err.removesuffix("\n")

    return refused


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", "{}", *PROBLEM),
        (*COMPARE, "-w", "{}"),
        (*COMPARE, "-t", "{}"),
        (*COMPARE, "--variants", "{}"),
        (*COMPARE, "--against", "{}"),
        ("compare", "embedding", *PROBLEM, "-w", "{}"),
        ("plan", "-t", "dgx_h100", "-n", "8", "-w", "{}"),
        ("profile", "reshard", "{}", *PROBLEM),
        ("report", "{}"),
        ("list", "{}"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_an_odd_name_is_refused_in_one_sentence(shardbench, arguments, odd):
    assert is_one_sentence(shardbench(*(odd if each == "{}" else each for each in arguments)))


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("-n", ["-1", "0", "99999999999999999999", "1" * 400, "131080", "x", "", "9" * 5000]),
        ("--budget", ["nan", "inf", "-inf", "-1", "0", "-0.0", "1e400", "x", ""]),
        ("--seconds", ["nan", "inf", "-1", "0"]),
        ("--seed", ["x", "", "9" * 5000]),
    ],
)
def test_a_number_that_cannot_be_is_refused(shardbench, option, values):
    for value in values:
        assert option.strip("-")[0] in shardbench(*COMPARE, option, value)
