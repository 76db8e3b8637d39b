"""Help texts are complete, their examples work, and every shell completes names."""

import os
import shlex
import subprocess
import sys
from typing import Any

import click
import pytest

from harness.contract.registry import load_registry
from harness.topologies.lookup import presets
from shardbench.cli import PANELS, START, program


def every_command(command: Any, name: str) -> list[tuple[str, Any]]:
    commands = [(name, command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for sub in command.list_commands(context):
            commands += every_command(command.get_command(context, sub), f"{name} {sub}")
    return commands


def examples_in(epilog: str) -> list[str]:
    """Return the example commands in a help text's epilog, each joined into one line."""
    lines = "\n".join(epilog.splitlines()[2:]).replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines]


COMMANDS = every_command(program, "shardbench")
TRIED = [line.strip() for line in START.splitlines() if line.startswith("  ")]
EXAMPLES = [*TRIED, *(line for _, command in COMMANDS for line in examples_in(command.epilog))]


def parsed(line: str) -> dict[str, Any]:
    """Return the arguments and options that the program parses from a command line, by name."""
    words = shlex.split(line)[1:]
    command: Any = program
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words.pop(0))
    return dict(command.make_context("shardbench", words).params)


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_every_help_text_is_whole_at_80_columns_and_has_an_example(name, command, shardbench):
    """No line is cut, and the example begins with the command."""
    code, out, _ = shardbench(*name.split()[1:], "--help")
    assert code == 0
    lines = [line for line in out.splitlines() if not line.startswith("Usage:")]
    assert [line for line in lines if len(line) > 80 or line.endswith(("...", "…"))] == []
    shown = examples_in(command.epilog)
    assert shown
    assert all(line.startswith(name) for line in shown)
    whole = " ".join(out.replace("\\\n", " ").split())
    assert [line for line in shown if line not in whole] == []


def test_the_summary_in_the_list_of_commands_is_the_first_sentence_of_their_help():
    """The table of the program, which imports no command, repeats the docstrings."""
    helps = {name.removeprefix("shardbench "): command.help for name, command in COMMANDS}
    for commands in PANELS.values():
        for name, summary in commands.items():
            assert summary == " ".join(helps[name].partition("\n\n")[0].split())


@pytest.mark.parametrize("line", [line for line in EXAMPLES if "--help" not in line])
def test_the_program_takes_each_example(line):
    """Each example is parsed, and its options are known."""
    assert parsed(line)


def test_without_a_command_there_are_three_to_try(shardbench):
    """The program alone says what to do, and fails."""
    code, _, err = shardbench()
    assert code == 2
    assert len([line for line in err.splitlines() if line.startswith("  shardbench ")]) == 3


HEAVY = {"numpy", "pandas", "torch", "matplotlib", "scipy", "numba", "asyncio", "psutil", "jinja2"}


@pytest.mark.parametrize(
    ("words", "unused"),
    [
        (["--help"], {*HEAVY, "rich", "harness.contract", "shardbench.options"}),
        (["--version"], {*HEAVY, "rich", "harness.contract", "shardbench.options"}),
        (["list"], {*HEAVY, "harness.measuring"}),
    ],
)
def test_what_a_quick_command_does_not_show_is_not_imported(words, unused):
    """Every import is paid for by each call of the program."""
    script = f"import sys; sys.argv[1:] = {words}; from shardbench.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", script],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    imported = {line.rpartition("|")[2].strip() for line in lines}
    assert sorted(imported & unused) == []


def asked_by(shell: str, line: str) -> dict[str, str]:
    """Return the environment variables by which a shell asks the program to complete `line`."""
    *_, typed = words = line.split(" ")
    asked = {
        "COMP_WORDS": line,
        "COMP_CWORD": typed if shell == "fish" else str(len(words) - 1),
    }
    return {"_SHARDBENCH_COMPLETE": f"{shell}_complete", **asked}


def test_names_are_completed(shardbench, monkeypatch: pytest.MonkeyPatch):
    """Commands, families, variants, workloads, topologies, suites."""
    embedding = load_registry().find("embedding")
    known = [workload.name for workload in embedding.workloads() if workload.name[:4] == "dlrm"]
    beginning = "compare embedding "
    for line, names in {
        "comp": ["compare"],
        "compare emb": ["embedding"],
        "explain embedding/cert": ["embedding/certified"],
        f"{beginning}--against comp": ["compiled"],
        f"{beginning}--variants uniform,comp": ["uniform,compiled"],
        f"{beginning}-w dlrm": known,
        f"{beginning}-t dgx": [name for name in presets() if name[:3] == "dgx"],
        "sweep d": ["default", "dimspec", "dtensor"],
        "list top": ["topologies"],
        "list variants emb": ["embedding"],
    }.items():
        for name, value in asked_by("bash", f"shardbench {line}").items():
            monkeypatch.setenv(name, value)
        code, out, err = shardbench()
        assert (code, err) == (0, "")
        assert [text.removeprefix("plain,") for text in out.splitlines()] == names


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_is_given_names_and_has_a_script(shell):
    """A child process answers as the shell's completion script asks it."""
    line = "shardbench compare embedding --against comp"
    for environment, expected in (
        (asked_by(shell, line), "compiled"),
        ({"_SHARDBENCH_COMPLETE": f"{shell}_source"}, f"_SHARDBENCH_COMPLETE={shell}_complete"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "shardbench"],
            capture_output=True, text=True, check=True, env={**os.environ, **environment},
        )  # fmt: skip
        assert done.stderr == ""
        assert expected in done.stdout


@pytest.mark.parametrize(
    "name",
    ["calibrate -t dgx_h100", "compare toy@toy/dgx_h100:2", "doctor", "plan -w dlrm-856"],
)
@pytest.mark.parametrize(
    ("words", "file"),
    [("", ""), ("--json", "-"), ("--json b.json", "b.json"), ("--json=a.txt", "a.txt")],
)
def test_json_without_a_file_is_standard_output(name: str, words: str, file: str):
    """`--json` never takes an argument for its file."""
    command, *arguments = name.split()
    assert parsed(f"shardbench {name} {words}")["json"] == file
    values = parsed(f"shardbench {command} {words} {' '.join(arguments)}")
    assert values["json"] == file
    assert values.get("cell", "toy@toy/dgx_h100:2") == "toy@toy/dgx_h100:2"
