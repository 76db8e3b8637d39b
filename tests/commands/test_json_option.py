"""`--json` of every command: standard output, a file, and arguments that it must not take."""

from typing import Any

import pytest
import typer

from shardbench.cli import app

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands
CELL = "toy@toy/dgx_h100:2"
# The commands with the option, and the arguments that each needs.
NEEDED = {
    "calibrate": ["-t", "dgx_h100"],
    "compare": [CELL],
    "doctor": [],
    "plan": ["-w", "dlrm-856"],
    "selftest": [],
    "validate": ["-w", "dlrm-856"],
}


def parsed(name: str, words: list[str]) -> dict[str, Any]:
    return dict(COMMANDS[name].make_context(name, words).params)


def test_these_are_all_commands_with_the_option():
    taking = [
        name
        for name, command in COMMANDS.items()
        if any(option.name == "json" for option in command.params)
    ]
    assert sorted(taking) == sorted(NEEDED)


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize(
    ("words", "file"),
    [
        ([], ""),
        (["--json"], "-"),
        (["--json", "-"], "-"),
        (["--json", "a/b.json"], "a/b.json"),
        (["--json=a.txt"], "a.txt"),
        (["--json=a.json"], "a.json"),
    ],
)
def test_without_a_file_it_is_standard_output(name: str, words: list[str], file: str):
    assert parsed(name, [*NEEDED[name], *words])["json"] == file
    assert parsed(name, [*words, *NEEDED[name]])["json"] == file


def test_an_argument_after_it_stays_an_argument():
    values = parsed("compare", ["--json", CELL, "--variants", "same"])
    assert (values["json"], values["family"], values["variants"]) == ("-", CELL, "same")


def test_an_empty_file_or_one_of_another_name_is_refused_and_nothing_is_run(shardbench, tmp_path):
    for words in (["--json", ""], ["--json="], ["--json", "found.txt"]):
        code, out, err = shardbench("doctor", *words)
        assert (code, out) == (2, "")
        assert "--json must not be empty." in err or "(found.txt)" in err
    assert not list(tmp_path.iterdir())
