"""The workflows name existing make targets, and the action for other repositories is the gate."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from documented import ROOT

WORKFLOWS = sorted((ROOT / ".github").rglob("*.yml"))
ACTION = ROOT / "action.yml"
EXAMPLE = ROOT / "docs" / "examples" / "gate.yml"
CELL = "dimspec/{}@all-pairs[rank=1,mesh=2x2]/dgx_a100_80gb:4"


def run(*command: str, folder: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program with more environment variables."""
    return subprocess.run(
        command, cwd=folder, env=os.environ | variables, capture_output=True, text=True, check=False
    )


def commands(path: Path) -> list[str]:
    """Return the commands that the steps of a workflow or an action run."""
    held = yaml.safe_load(path.read_text(encoding="utf-8"))
    jobs = [*held.get("jobs", {}).values(), held.get("runs", {})]
    return [step["run"] for job in jobs for step in job.get("steps", ()) if "run" in step]


def test_make_has_the_targets():
    """Every target of make that a workflow names exists."""
    lines = "\n".join(command for path in WORKFLOWS for command in commands(path))
    lines = lines.replace("${{ matrix.tests }}", "test-long test-slow test-docs")
    wanted = re.findall(r"^make ([\w -]+?)(?: PYTHON=python)?$", lines, re.MULTILINE)
    done = run("make", "--dry-run", *" ".join(wanted).split())
    assert len(wanted) > 8
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("tag", "code"), [("v{}", 0), ("{}", 1), ("v{}.1", 1)])
def test_a_tag_that_is_not_the_version_is_not_published(tmp_path, tag, code):
    """Only the tag of the version in pyproject.toml goes on."""
    publish = ROOT / ".github" / "workflows" / "publish.yml"
    (script,) = [command for command in commands(publish) if "GITHUB_REF_NAME" in command]
    (tmp_path / "python").symlink_to(sys.executable)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = run("bash", "-e", "-c", script, PATH=path, GITHUB_REF_NAME=tag.format(version))
    assert done.returncode == code, done.stderr


EXAMPLES = (EXAMPLE, *sorted(EXAMPLE.parent.glob("planner-counts*.yml")))


@pytest.mark.parametrize("path", [*WORKFLOWS, ACTION, *EXAMPLES], ids=lambda path: path.name)
def test_what_it_uses_of_others_has_a_version(path):
    """Actions of others are official ones with a version."""
    for used in re.findall(r"\buses: (\S+)", path.read_text(encoding="utf-8")):
        if used.startswith("./"):
            folder = ROOT / used.replace(".shardbench", "")  # where examples check this project out
            assert (folder / "action.yml").is_file()
        else:
            assert re.fullmatch(r"(actions|pypa)/[\w-]+@v\d[\d.]*", used)


class Job:
    """A job of GitHub Actions on this machine, which uses the action."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.summary = folder, folder / "summary.md"
        (folder / "bin").mkdir()
        self.path = f"{folder / 'bin'}:{os.environ['PATH']}"
        self.program("shardbench", f'exec {sys.executable} -m shardbench "$@"')
        (folder / "bin" / "python").symlink_to(sys.executable)

    def program(self, name: str, script: str) -> None:
        """Put a program onto the path."""
        file = self.folder / "bin" / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def step(self, name: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a step of the action in a folder, as GitHub does."""
        steps = yaml.safe_load(ACTION.read_text(encoding="utf-8"))["runs"]["steps"]
        (script,) = [known["run"] for known in steps if known["name"] == name]
        variables = {
            "GITHUB_ACTION_PATH": str(ROOT),
            "RUNNER_TEMP": str(self.folder),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "MATRIX": "",
            "ARGUMENTS": "",
            "INCONCLUSIVE": "fail",
            **variables,
        }
        # The cells are there: to judge them takes no minute.
        script = script.replace('--results "$kept/gate.jsonl"', "--judge cells.jsonl")
        shell = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
        return run(*shell, folder=folder, PATH=self.path, **variables)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Path:
    """A folder with measured cells of a small problem, and expectations for a gate."""
    folder = tmp_path_factory.mktemp("gate")
    for words in (
        "compare dimspec -w all-pairs[rank=1,mesh=2x2] -t dgx_a100_80gb -n 4 "
        "--variants eager-dict,interned --seconds 0.1 --results cells.jsonl",
        "gate --init expected.toml --judge cells.jsonl",
    ):
        run(sys.executable, "-m", "shardbench", *words.split(), folder=folder).check_returncode()
    expected = (folder / "expected.toml").read_text()
    (folder / "more.toml").write_text(expected + f'\n[cell."{CELL.format("lazy-dict")}"]\n')
    proposed = tomllib.loads(expected)
    low, high = proposed["cell"][CELL.format("interned")]["ratio"]
    within = (low * proposed["ratio_slack"] + high / proposed["ratio_slack"]) / 2
    (folder / "unsure.toml").write_text(expected.replace(f", {high}]", f", {within}]"))
    return folder


@pytest.mark.parametrize(
    ("expectations", "inconclusive", "code", "verdict"),
    [
        ("expected.toml", "fail", 0, "As expected"),
        ("more.toml", "pass", 1, "Missing"),
        ("unsure.toml", "fail", 2, "Inconclusive"),
        ("unsure.toml", "pass", 0, "Inconclusive"),
        ("none.toml", "pass", 3, "Error"),
    ],
)
def test_the_action_says_what_the_gate_says(
    measured, job, expectations, inconclusive, code, verdict
):
    """The step's exit code, its outputs and the summary are those of the gate."""
    given = {"EXPECTATIONS": expectations, "INCONCLUSIVE": inconclusive}
    done = job.step("Gate", measured, **given)
    assert done.returncode == code, done.stderr
    output = dict(line.split("=", 1) for line in (job.folder / "output").read_text().splitlines())
    assert output["exit-code"] == str(2 if verdict == "Inconclusive" else code)
    assert output["verdict"].startswith(verdict)
    assert verdict in job.summary.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("\n--seconds 30\n--budget 120\n", ["--seconds", "30", "--budget", "120"]),
        ("--results 'my cells.jsonl' * $HOME", ["--results", "my cells.jsonl", "*", "$HOME"]),
    ],
)
def test_arguments_are_split_as_a_shell_does(job, arguments, words):
    """Lines and quotes keep every word, and nothing in them is run or replaced."""
    job.program("shardbench", "printf '%s\\n' \"$@\"")
    done = job.step("Gate", job.folder, EXPECTATIONS="expectations.toml", ARGUMENTS=arguments)
    assert done.returncode == 0, done.stderr
    given = done.stdout.splitlines()
    assert given[given.index("--markdown") + 2 :] == words


def test_the_token_is_given_to_no_package_of_the_repository(job, tmp_path):
    """The comment is written by the action's own file, not by a package of the same name."""
    folder = tmp_path / "repository"
    for package in ("harness", "planners", "reports", "shardbench"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text("raise SystemExit('theirs was run')\n")
    event = job.folder / "event.json"
    event.write_text('{"ref": "refs/heads/main"}')
    given = {"FOLDER": ".", "NAME": "expected.toml", "GITHUB_TOKEN": "t"}
    given |= {"GITHUB_EVENT_PATH": str(event), "PYTHONPATH": str(folder)}
    done = job.step("Comment", folder, **given)
    assert (done.returncode, done.stdout[:11]) == (0, "No comment:"), done.stderr


@pytest.mark.parametrize(("answer", "commented"), [("7", ["7"]), ("", [])])
def test_the_example_takes_the_pull_request_from_the_event(job, answer, commented):
    """Of the artifact of a fork only the text is used, and without a pull request nothing is."""
    (script,) = commands(EXAMPLE.with_name("planner-counts-comment.yml"))
    job.program(
        "gh",
        f'case "$1" in api) echo "$*" > asked; echo "{answer}";; pr) echo "$3" > commented;; esac',
    )
    (job.folder / "number.txt").write_text("666\n")
    event = {"GH_REPO": "some/planners", "HEAD": "somebody:a-branch", "COMMIT": "abc"}
    done = run("bash", "-e", "-c", script, folder=job.folder, PATH=job.path, **event)
    assert done.returncode == 0, done.stderr
    assert "head=somebody:a-branch" in (job.folder / "asked").read_text()
    file = job.folder / "commented"
    assert (file.read_text().split() if file.exists() else []) == commented
