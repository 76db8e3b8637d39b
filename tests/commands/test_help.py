"""Help texts are complete, their examples work, and every shell completes names."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
import typer

from harness.contract.registry import load_registry
from harness.topologies.lookup import presets
from shardbench.cli import app, main
from shardbench.command import START
from shardbench.options import found_registry
from shardbench.problem_options import find_problem


def every_command(command: Any, name: str) -> list[tuple[str, Any]]:
    found = [(name, command)]
    for each in getattr(command, "commands", {}).values():
        found += every_command(each, f"{name} {each.name}")
    return found


def examples_in(epilog: str) -> list[str]:
    """Return the example commands in a help text's epilog, each joined into one line."""
    lines = "\n".join(epilog.splitlines()[2:]).replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines]


PROGRAM = typer.main.get_command(app)
COMMANDS = every_command(PROGRAM, "shardbench")
TRIED = [line.strip() for line in START.splitlines() if line.startswith("  ")]
EXAMPLES = [*TRIED, *(each for _, command in COMMANDS for each in examples_in(command.epilog))]


def parsed(line: str) -> dict[str, Any]:
    """Return the arguments and options that the program parses from a command line, by name."""
    program, *words = shlex.split(line)
    assert program == "shardbench"
    command: Any = PROGRAM
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if words == ["--help"]:
        return {}
    assert not hasattr(command, "commands"), line
    return dict(command.make_context("shardbench", words).params)


def help_of(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*name.split()[1:], "--help"])
    assert not ended.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name, _ in COMMANDS])
def test_every_line_of_a_help_text_is_whole_at_80_columns(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = help_of(name, capsys).splitlines()
    assert [line for line in lines if len(line) > 80 or line.endswith(("...", "…"))] == [
        line for line in lines if line.startswith("Usage:") and line.endswith("]...")
    ]


def test_a_group_says_of_each_command_what_it_does_in_one_line(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name, command in COMMANDS:
        lines = help_of(name, capsys).splitlines()
        for each in getattr(command, "commands", {}).values():
            said = each.get_short_help_str(1000).removesuffix(".")
            assert [line for line in lines if line.split() == [each.name, *said.split()]]


def test_the_commands_stand_in_groups(capsys):
    lines = help_of("shardbench", capsys).splitlines()
    for panel, name in {"Measure:": "compare", "Plan:": "plan", "For CI:": "gate"}.items():
        at = lines.index(panel)
        assert name in [line.split()[0] for line in lines[at + 1 : lines.index("", at)]]


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_every_command_has_an_example_of_its_own(name, command, capsys):
    shown = examples_in(command.epilog)
    assert shown
    assert all(each.startswith(name) for each in shown)
    out = " ".join(help_of(name, capsys).replace("\\\n", " ").split())
    assert [each for each in shown if each not in out] == []


@pytest.mark.parametrize("line", EXAMPLES)
def test_the_program_takes_each_example(line):
    assert bool(parsed(line)) != line.endswith(" --help")


@pytest.mark.parametrize(
    "line",
    [
        line
        for line in EXAMPLES
        if line.split()[1] in ("compare", "profile", "explain") and "--help" not in line
    ],
)
def test_the_program_knows_what_an_example_names(line):
    values = parsed(line)
    name = "".join(filter(None, (values.get(key) for key in ("family", "cell"))))
    placed = (values.get(key) for key in ("workload", "topology", "gpus"))
    family = find_problem(found_registry(), name, *placed).family
    chosen = [values.get(key) for key in ("variant", "variants", "against")]
    named = set(filter(None, ",".join(filter(None, chosen)).split(",")))
    assert named <= family.variants.keys()


def test_without_a_command_there_are_three_to_try(capsys):
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert len([line for line in said.splitlines() if line.startswith("  shardbench ")]) == 3
    assert max(map(len, said.splitlines())) <= 80


def test_the_version_is_said(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert not ended.value.code
    assert capsys.readouterr().out == f"shardbench {version('shardbench')}\n"


Completed = Callable[[str], list[str]]


def asked_by(shell: str, line: str) -> dict[str, str]:
    """Return the environment variables by which a shell asks the program to complete `line`."""
    return {
        "_SHARDBENCH_COMPLETE": f"complete_{shell}",
        **{
            "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)},
            "zsh": {"_TYPER_COMPLETE_ARGS": line},
            "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        }[shell],
    }


@pytest.fixture
def completed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Completed:
    """Return a function that returns the program's completions of a line for bash."""

    def completed(line: str) -> list[str]:
        for name, value in asked_by("bash", line).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            app(prog_name="shardbench")
        out, err = capsys.readouterr()
        assert (ended.value.code, err) == (0, "")
        return out.splitlines()

    return completed


def test_names_are_completed(completed: Completed):
    registry = load_registry()
    embedding = registry.find("embedding")
    assert completed("shardbench comp") == ["compare"]
    assert completed("shardbench compare emb") == ["embedding"]
    assert completed("shardbench explain embedding/cert") == ["embedding/certified"]
    beginning = "shardbench compare embedding "
    assert completed(f"{beginning}--against comp") == ["compiled"]
    assert completed(f"{beginning}--variants uniform,comp") == ["uniform,compiled"]
    known = [workload.name for workload in embedding.workloads() if workload.name[:4] == "dlrm"]
    assert completed(f"{beginning}-w dlrm") == known
    assert completed(f"{beginning}-t dgx") == [name for name in presets() if name[:3] == "dgx"]
    assert completed("shardbench sweep d") == ["default", "dimspec", "dtensor"]
    assert completed("shardbench list top") == ["topologies"]
    assert completed("shardbench list variants emb") == ["embedding"]


def run_by_a_script(environment: dict[str, str]) -> str:
    """Run the program as a shell's completion script does; return its standard output."""
    done = subprocess.run(
        [sys.executable, "-c", "from shardbench.cli import app; app(prog_name='shardbench')"],
        capture_output=True, text=True, check=True, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_is_given_names(shell):
    line = "shardbench compare embedding --against comp"
    assert "compiled" in run_by_a_script(asked_by(shell, line))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(shell, capsys, monkeypatch):
    monkeypatch.setenv("_SHARDBENCH_COMPLETE", f"source_{shell}")
    with pytest.raises(SystemExit):
        app(prog_name="shardbench")
    assert f"_SHARDBENCH_COMPLETE=complete_{shell}" in capsys.readouterr().out
