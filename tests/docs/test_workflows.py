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


def commands(path: Path) -> list[str]:
    """Return the commands that the steps of a workflow or an action run."""
    held = yaml.safe_load(path.read_text(encoding="utf-8"))
    jobs = [*held.get("jobs", {}).values(), held.get("runs", {})]
    return [step["run"] for job in jobs for step in job.get("steps", ()) if "run" in step]


def test_make_has_the_targets():
    lines = "\n".join(command for path in WORKFLOWS for command in commands(path))
    lines = lines.replace("${{ matrix.tests }}", "test-long test-slow test-docs")
    wanted = re.findall(r"^make ([\w -]+?)(?: PYTHON=python)?$", lines, re.MULTILINE)
    done = subprocess.run(
        ["make", "--dry-run", *" ".join(wanted).split()],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert len(wanted) > 8
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("tag", "code"), [("v{}", 0), ("{}", 1), ("v{}.1", 1)])
def test_a_tag_that_is_not_the_version_is_not_published(tmp_path: Path, tag: str, code: int):
    publish = ROOT / ".github" / "workflows" / "publish.yml"
    (script,) = [command for command in commands(publish) if "GITHUB_REF_NAME" in command]
    (tmp_path / "python").symlink_to(sys.executable)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=ROOT, check=False, capture_output=True,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_REF_NAME": tag.format(version)},
    )  # fmt: skip
    assert done.returncode == code, done.stderr


EXAMPLES = (EXAMPLE, *sorted(EXAMPLE.parent.glob("planner-counts*.yml")))


@pytest.mark.parametrize("path", [*WORKFLOWS, ACTION, *EXAMPLES], ids=lambda path: path.name)
def test_what_it_uses_of_others_has_a_version(path: Path):
    for used in re.findall(r"\buses: (\S+)", path.read_text(encoding="utf-8")):
        if used.startswith("./"):
            folder = ROOT / used.replace(".shardbench", "")  # where examples check this project out
            assert (folder / "action.yml").is_file()
        else:
            assert re.fullmatch(r"(actions|pypa)/[\w-]+@v\d[\d.]*", used)


def test_nothing_is_left_to_be_replaced():
    for path in (*EXAMPLES, ACTION, ROOT / "docs" / "gate.md"):
        assert "OWNER" not in path.read_text(encoding="utf-8")


def test_the_action_updates_its_comment_on_pull_requests_alone():
    held = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    (step,) = [s for s in held["runs"]["steps"] if "reports.gate.comment" in s.get("run", "")]
    assert "github.event_name == 'pull_request'" in step["if"]
    assert step["if"].startswith("always()"), "a verdict other than as expected fails the job"
    assert step["env"]["GITHUB_TOKEN"] == "${{ inputs.token }}"


def test_the_example_gives_the_action_what_it_takes():
    (job,) = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))["jobs"].values()
    (given,) = [step["with"] for step in job["steps"] if ".shardbench" in step.get("uses", "")]
    assert set(given) <= set(yaml.safe_load(ACTION.read_text(encoding="utf-8"))["inputs"])


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Path:
    """A folder with measured cells of a small problem, and expectations for a gate."""
    folder = tmp_path_factory.mktemp("gate")
    for words in (
        "compare dimspec -w all-pairs[rank=1,mesh=2x2] -t dgx_a100_80gb -n 4 "
        "--variants eager-dict,interned --seconds 0.1 --results cells.jsonl",
        "gate --init expected.toml --judge cells.jsonl",
    ):
        subprocess.run(
            [sys.executable, "-m", "shardbench", *words.split()],
            cwd=folder, capture_output=True, check=True,
        )  # fmt: skip
    expected = (folder / "expected.toml").read_text()
    (folder / "more.toml").write_text(expected + f'\n[cell."{CELL.format("lazy-dict")}"]\n')
    held = tomllib.loads(expected)
    low, high = held["cell"][CELL.format("interned")]["ratio"]
    within = (low * held["ratio_slack"] + high / held["ratio_slack"]) / 2
    (folder / "unsure.toml").write_text(expected.replace(f"{high},\n", f"{within},\n"))
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
    measured: Path, tmp_path: Path, expectations: str, inconclusive: str, code: int, verdict: str
):
    (script,) = [command for command in commands(ACTION) if "shardbench gate" in command]
    program = tmp_path / "shardbench"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m shardbench "$@"\n')
    program.chmod(0o755)
    # The cells are there: to judge them takes no minute.
    script = script.replace('--results "$kept/gate.jsonl"', "--judge cells.jsonl")
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=measured, capture_output=True, text=True, check=False,
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(tmp_path),
            "GITHUB_OUTPUT": str(tmp_path / "output"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            "EXPECTATIONS": expectations, "INCONCLUSIVE": inconclusive, "ARGUMENTS": "",
        },
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    output = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert output["exit-code"] == str(2 if verdict == "Inconclusive" else code)
    assert output["verdict"].startswith(verdict)
    assert verdict in (tmp_path / "summary.md").read_text()
