"""Command lines that nobody should type: one sentence and exit code 2, before anything is done."""

import pytest
from hostile import is_one_sentence, no_files

from shardbench.cli import main

PROBLEM = ("-w", "micro[ops=10,inserts=2]", "-t", "dgx_h100", "-n", "4")
COMPARE = ("compare", "reshard", *PROBLEM)
ODD = (
    *("[", "'", "[red]x[/red]", "\x1b[31m", "a\nb", "\udcff", "n" * 10_000, "#.csv", ".csv", "@"),
    *("a.csv#b", "../x.csv", "{{ 7*7 }}"),
)


@pytest.fixture
def shardbench(capsys, monkeypatch, tmp_path):
    """Run a command in an empty folder; returns what it said, once it has refused."""
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


@pytest.mark.parametrize("what", ["folder", "pipe", "device", "loop", "huge"])
@pytest.mark.parametrize(
    ("suffix", "arguments"),
    [
        (".csv", ("compare", "embedding", "-t", "dgx_h100", "-n", "8", "-w")),
        (".json.gz", ("compare", "dimspec", "-t", "dgx_h100", "-n", "8", "-w")),
        (".csv", (*COMPARE, "-t")),
        (".jsonl", ("report",)),
    ],
)
def test_what_is_no_file_is_refused_at_once(shardbench, tmp_path, what, suffix, arguments):
    said = shardbench(*arguments, no_files(tmp_path, suffix)[what])
    assert is_one_sentence(said)
    assert "cannot be read: " in said


@pytest.mark.parametrize("number", ["-1", "0", "99999999999999999999", "1" * 400, "131080"])
def test_a_number_of_gpus_that_nobody_has_is_refused(shardbench, number):
    assert is_one_sentence(shardbench(*COMPARE, "-n", number))


@pytest.mark.parametrize("option", ["--budget", "--seconds"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "0", "-0.0", "1e400"])
def test_a_time_that_cannot_be_is_refused(shardbench, option, value):
    assert is_one_sentence(shardbench(*COMPARE, option, value))


@pytest.mark.parametrize("value", ["x", "", "9" * 5000])
@pytest.mark.parametrize("option", ["-n", "--seed", "--budget"])
def test_what_is_no_number_is_refused(shardbench, option, value):
    assert option.strip("-")[0] in shardbench(*COMPARE, option, value)
