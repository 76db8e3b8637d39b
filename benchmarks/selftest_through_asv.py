"""The self-test's protocol through `asv continuous`: what asv makes of the same slow-downs.

`python -m benchmarks.selftest_through_asv --rounds 25` makes a repository of two commits in a
temporary folder. Its benchmarks call what `shardbench selftest` calls; at the second commit some
have known shares more to do. asv runs as this project has set it up, except that a change counts
from the self-test's noise floor on.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from harness.measuring.selftest.rounds import SLOWDOWNS, variant_of
from harness.measuring.timing.verdict import NOISE_FLOOR

_ROOT = Path(__file__).parents[1]
_PROJECT = """
[project]
name = "shardbench"
version = "0.1.0"
[project.entry-points."shardbench.families"]
copies = "copies:FAMILY"
"""
_FAMILY = """
from dataclasses import replace
from functools import partial
from harness.contract import Prepared
from harness.measuring.selftest.rounds import FAMILY, SLOWDOWNS, copies, variant_of

FAMILY.benchmarks = ("copies/dgx_a100_80gb:1",)
if {is_base}:
    for name in FAMILY.variants:
        equal = lambda problem: Prepared(partial(copies, problem))
        FAMILY.variants[name] = replace(FAMILY.variants[name], prepare=equal)
"""
_IDENTITY = {
    f"GIT_{role}_{key}": text
    for role in ("AUTHOR", "COMMITTER")
    for key, text in {"NAME": "Self-test", "EMAIL": "selftest@example.org"}.items()
}
_ROW = re.compile(r"^\| (?P<mark>[-+ ]).*families\.selftest\.time_plan\('(?P<variant>[\w-]+)'")
_VERDICTS = {"+": "slower", "-": "faster"}


def make_repository(folder: Path) -> None:
    """Make the repository of two commits, whose benchmarks differ by the known slow-downs."""
    for package in ("harness", "benchmarks"):
        shutil.copytree(
            _ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(_ROOT / "asv.conf.json", folder)
    (folder / ".gitignore").write_text(".asv\n__pycache__\n.asv-machine.json\n")
    (folder / "pyproject.toml").write_text(_PROJECT)
    _run(folder, "git", "init", "-q", "-b", "main")
    for is_base in (True, False):
        (folder / "copies.py").write_text(_FAMILY.format(is_base=is_base))
        _run(folder, "git", "add", "-A")
        _run(folder, "git", "commit", "-q", "-m", "base" if is_base else "slower")


def verdicts_of_a_round(folder: Path) -> dict[str, str]:
    """Run `asv continuous` between the two commits; return what it says by variant."""
    shutil.rmtree(folder / ".asv" / "results", ignore_errors=True)
    command = f"-m asv continuous -f {1 + NOISE_FLOOR} --bench time_plan main~1 main"
    return verdicts_in(_run(folder, sys.executable, *command.split(), allowed=(0, 1)))


def verdicts_in(printed: str) -> dict[str, str]:
    """Read what `asv continuous` printed; it lists only what it takes for changed."""
    verdicts = {variant_of(percent): "not changed" for percent in SLOWDOWNS}
    for line in printed.splitlines():
        if (found := _ROW.match(line)) and found["variant"] in verdicts:
            verdicts[found["variant"]] = _VERDICTS.get(found["mark"], "not changed")
    return verdicts


def _run(folder: Path, *command: str, allowed: tuple[int, ...] = (0,)) -> str:
    environment = os.environ | _IDENTITY | {"HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if ran.returncode not in allowed:
        raise SystemExit(f"{' '.join(command)} failed: {ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return ran.stdout


def main() -> None:
    """Count asv's verdicts by slow-down and print them as JSON."""
    parser = argparse.ArgumentParser(description="The self-test's protocol through asv.")
    parser.add_argument("--rounds", type=int, default=25)
    rounds = parser.parse_args().rounds
    counts: Mapping[str, Counter[str]] = {variant_of(percent): Counter() for percent in SLOWDOWNS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_repository(folder)
        for _ in range(rounds):
            for variant, verdict in verdicts_of_a_round(folder).items():
                counts[variant][verdict] += 1
    print(json.dumps(counts, indent=2))


if __name__ == "__main__":
    main()
