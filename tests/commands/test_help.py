"""Help texts are complete, their examples are parsed, and shells complete names."""

import shlex
import subprocess
import sys
from typing import Any

import click
import pytest

from harness.contract.registry import load_registry
from harness.topologies.lookup import presets
from shardbench.cli import PANELS, program


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


def parsed(line: str) -> dict[str, Any]:
    """Return the arguments and options that the program parses from a command line, by name."""
    words = shlex.split(line)[1:]
    command: Any = program
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words.pop(0))
    return dict(command.make_context("shardbench", words).params)


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_every_help_text_is_whole_at_80_columns_and_has_examples_that_parse(
    name, command, shardbench
):
    """No line is cut, and each example begins with the command."""
    code, out, _ = shardbench(*name.split()[1:], "--help")
    assert code == 0
    lines = [line for line in out.splitlines() if not line.startswith("Usage:")]
    assert [line for line in lines if len(line) > 80 or line.endswith(("...", "…"))] == []
    shown = examples_in(command.epilog)
    assert shown
    whole = " ".join(out.replace("\\\n", " ").split())
    for line in shown:
        assert line.startswith(name)
        assert line in whole
        assert parsed(line)


def test_the_summary_in_the_list_of_commands_is_the_first_sentence_of_their_help():
    """The table of the program, which imports no command, repeats the docstrings."""
    helps = {name.removeprefix("shardbench "): command.help for name, command in COMMANDS}
    for commands in PANELS.values():
        for name, summary in commands.items():
            assert summary == " ".join(helps[name].partition("\n\n")[0].split())


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


def test_names_are_completed(shardbench, monkeypatch):
    """Commands, families, variants, workloads, topologies, suites, libraries, choices."""
    embedding = load_registry().find("embedding")
    known = [workload.name for workload in embedding.workloads() if workload.name[:4] == "dlrm"]
    for line, names in {
        "comp": ["compare"],
        "compare emb": ["embedding"],
        "explain embedding/cert": ["embedding/certified"],
        "compare embedding --against comp": ["compiled"],
        "compare embedding --variants uniform,comp": ["uniform,compiled"],
        "compare embedding -w dlrm": known,
        "compare embedding -t dgx": [name for name in presets() if name[:3] == "dgx"],
        "sweep d": ["default", "dimspec", "dtensor"],
        "releases torchr": ["torchrec"],
        "list top": ["topologies"],
        "list variants emb": ["embedding"],
    }.items():
        words = f"shardbench {line}"
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
        monkeypatch.setenv("_SHARDBENCH_COMPLETE", "bash_complete")
        code, out, err = shardbench()
        assert (code, err) == (0, "")
        assert [text.removeprefix("plain,") for text in out.splitlines()] == names


@pytest.mark.parametrize(
    ("words", "file"),
    [("", ""), ("--json", "-"), ("--json b.json", "b.json"), ("--json=a.txt", "a.txt")],
)
def test_json_without_a_file_is_standard_output(words, file):
    """`--json` never takes an argument for its file."""
    cell = "toy@toy/dgx_h100:2"
    for line in (f"compare {cell} {words}", f"compare {words} {cell}"):
        values = parsed(f"shardbench {line}")
        assert (values["json"], values["cell"]) == (file, cell)
