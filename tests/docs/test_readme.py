"""What README promises, tried as a reader would."""

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_a_package_of_ones_own_adds_a_variant_in_under_20_lines(tmp_path):
    (code,) = blocks("python")
    (entry_point,) = blocks("toml")
    assert len((code + entry_point).splitlines()) < 20
    (tmp_path / "my_planners.py").write_text(code)
    installed = tmp_path / "my_planners-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-planners\nVersion: 1.0\n")
    name, value = re.search(r"(\w+) = \"(.*)\"", entry_point).groups()
    (installed / "entry_points.txt").write_text(f"[shardbench.families]\n{name} = {value}\n")

    def shardbench(*arguments: str) -> str:
        result = subprocess.run(
            [sys.executable, "-m", "shardbench", *arguments],
            capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert "embedding/greedy-early-stop" in shardbench("list", "variants")
    compared = shardbench(
        "compare", "embedding", "-w", "synthetic[tables=3]", "-t", "dgx_h100", "-n", "8",
        "--variants", "greedy-early-stop", "--seconds", "0.1",
    )  # fmt: skip
    assert re.search(r"greedy-early-stop .* own ", compared)


def test_every_command_that_is_named_exists():
    shown = re.findall(r"^shardbench (\w+)", "\n".join(blocks("")), re.MULTILINE)
    documented = {"list", "compare", "plan", "profile", "report", "gate", "sweep", "selftest"}
    assert set(shown) == documented
    for command in shown:
        result = subprocess.run(
            [sys.executable, "-m", "shardbench", command, "--help"],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr


def test_every_document_that_is_named_exists():
    text = README.read_text(encoding="utf-8")
    for name in re.findall(r"[\w-]+\.md", text):
        assert (README.parent / name).exists() or (README.parent / "docs" / name).exists(), name
