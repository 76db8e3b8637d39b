"""Every command in README and docs works as it is written."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from documented import ROOT, Command, commands, documents, run_python

from harness.contract.variants import Variant
from shardbench.cli import program
from shardbench.options import found_registry
from shardbench.problems import find_problem

# The example package has a test of its own, which installs it and runs what its README shows.
OWN_PACKAGE = ROOT / "docs" / "examples" / "own_planners"
COMMANDS = commands(path for path in documents() if not path.is_relative_to(OWN_PACKAGE))
SHARDBENCH = [command for command in COMMANDS if command.words[0] == "shardbench"]
# Files that the documents call the reader's own.
TABLES = "name,rows,dim,pooling_factor\nuser,100000,64,1\nitem,50000,32,10\nquery,1000,16,5\n"
REBALANCINGS = {
    "shardbench": {"version": 1, "family": "experts"},
    "engine": "vllm",
    "gpus": 4,
    "slots": 8,
    "groups": 1,
    "nodes": 1,
    "steps": [{"loads": [[1, 2, 3, 4, 5, 6]], "placement": [[0, 1, 2, 3, 4, 5, 0, 1]]}],
}
RESULTS = ("results.jsonl", "results/copying-ladder.jsonl", "before.jsonl", "after.jsonl")
COPIED = ("docs", "benchmarks", "expectations.toml", "Makefile", "asv.conf.json", "pyproject.toml")


@pytest.fixture(scope="session")
def captured(tmp_path_factory):
    """A folder with the file of the example that captures."""
    folder = tmp_path_factory.mktemp("captured")
    example = str(ROOT / "docs" / "examples" / "capture_embedding.py")
    run_python(example, str(folder / "problem.json"), folder=folder)
    return folder


@pytest.fixture(scope="session")
def checkout(tmp_path_factory, captured):
    """A copy of the checkout, with the files that documents call the reader's own."""
    made = tmp_path_factory.mktemp("checkout")
    for name in COPIED:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, made / name)
    for name in ("my_tables.csv", "my.csv"):
        (made / name).write_text(TABLES)
    (made / "loads.json").write_text(json.dumps(REBALANCINGS))
    for path in captured.iterdir():
        shutil.copy(path, made)
    return made


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """Return the arguments and options that the program parses from a command's words, by name."""
    command: Any = program
    rest = list(words[1:])
    while hasattr(command, "commands"):
        assert rest, f"{' '.join(words)} is a group of commands"
        name = rest.pop(0)
        if name.startswith("-"):  # the program's own options, such as --version
            context = click.Context(command)
            assert name in {opt for each in command.get_params(context) for opt in each.opts}
            return {}
        assert name in command.commands, f"there is no command '{name}'"
        command = command.get_command(click.Context(command), name)
    if not rest:  # the name of a command in a sentence
        return {}
    return dict(command.make_context(words[1], rest).params)


@pytest.mark.parametrize("command", SHARDBENCH, ids=lambda command: command.id)
def test_the_program_understands_it_and_knows_what_it_names(command, checkout, monkeypatch):
    """Arguments parse, and workloads, topologies and variants exist."""
    monkeypatch.chdir(checkout)
    values = parsed(command.words)
    name = next((values[key] for key in ("name", "family", "cell") if values.get(key)), "")
    if command.words[1] in ("compare", "profile", "explain") and values:
        found = find_problem(
            found_registry(),
            name,
            values.get("workload"),
            values.get("topology"),
            values.get("gpus"),
        )
        chosen = ",".join(filter(None, (values.get("variants"), values.get("against"))))
        for variant in filter(None, chosen.split(",")):
            found.family.find(variant)
        found.family.label(found.workload)


def test_make_and_asv_have_their_commands():
    """Without commands the tests here would pass, so there must be some."""
    assert len(SHARDBENCH) > 50
    for name, option in (("make", "--dry-run"), ("asv", "--help")):
        shown = [command.words for command in COMMANDS if command.words[0] == name]
        assert shown
        for words in shown:
            command = [sys.executable, "-m", *words] if name == "asv" else words
            subprocess.run([*command, option], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


# What takes minutes is run smaller: the same command, with less time for the same.
SMALLER = {
    "compare": ("--seconds", "0.1", "--budget", "5"),
    "profile": ("--seconds", "0.1"),
    "report": ("--seconds", "0.1", "--budget", "5"),
    "selftest": ("--rounds", "1"),
    "sweep": ("--seconds", "0.1", "--budget", "2"),
}
# Hours, a network, a clone or a cluster: only whether the program takes them is tried.
TOO_LONG = (
    "history",
    "releases",
    "report --fresh",
    "report --large",
    "sweep default",
    "sweep large",
    "sweep suite.toml --executor",
)
# A gate says what it found; a machine without a GPU has no topology to capture.
ANSWERS = {"gate": (0, 1, 2), "topology capture -o machine.csv": (0, 1)}
WITH_CUDA = (0,) if torch.cuda.is_available() else (2,)


def runnable(command: Command) -> list[str]:
    """Return words to run instead of a command's: a smaller problem, or only `--help`."""
    words = command.words
    kind, arguments = words[1], words[2:]
    if not parsed(words) and kind not in ("list", "selftest"):  # a name in a sentence
        return [*words[1:], "--help"]
    if " ".join(words[1:]).startswith(TOO_LONG):
        return [kind, "--help"]
    if words[1:] == ["gate", "--init"]:
        return [*words[1:], "new.toml"]  # the checkout has the file that it would write
    if kind == "compare" and (real := [each.name for each in named(command) if each.upstream]):
        # A call of a real upstream can take a minute, and without its reference nothing compares.
        return [kind, *arguments, "--variants", ",".join(real), "--seconds", "0.1"]
    return [kind, *arguments, *SMALLER.get(kind, ())]


def named(command: Command) -> list[Variant[Any, Any]]:
    """Return the variants of all families with a name that stands in the command."""
    words = set(re.split(r"[\s,/@]+", command.text))
    families = found_registry().families
    return [each for family in families for each in family.variants.values() if each.name in words]


@pytest.mark.docs
@pytest.mark.parametrize("document", dict.fromkeys(each.document for each in SHARDBENCH))
def test_the_commands_of_a_document_run_in_their_order(document, checkout, tmp_path, monkeypatch):
    """Each exits as the document says, with the files of the commands before it."""
    folder = shutil.copytree(checkout, tmp_path / "checkout")
    monkeypatch.chdir(folder)
    prepare = "compare reshard -w transformer[layers=2] -t dgx_h100 -n 4 --seconds 0.1"
    for results in RESULTS:
        (folder / results).parent.mkdir(exist_ok=True)
        run([*prepare.split(), "--results", results], folder)
    failed = []
    for command in SHARDBENCH:
        if command.document != document or any(each.missing() for each in named(command)):
            continue
        words = runnable(command)
        done = run(words, folder)
        expected = ANSWERS.get(words[0]) or ANSWERS.get(" ".join(words)) or (0,)
        expected = WITH_CUDA if "device=cuda" in command.text else expected
        if done.returncode not in expected:
            failed.append(f"{command.text}\n{done.returncode}: {done.stderr[-1000:]}")
    assert not failed, "\n\n".join(failed)


def run(words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shardbench", *words],
        cwd=folder, capture_output=True, text=True, check=False, timeout=1200,
        env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
