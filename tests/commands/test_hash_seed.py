"""Commands that plan in their own process decide alike under every hash seed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FAMILY = """
from contextlib import nullcontext
from types import SimpleNamespace

from harness.contract import Abilities, Explanation, Family, Planning, Prepared, Quality, RankTable

WORK = SimpleNamespace(
    build=lambda workload, topology: {f"table {number}" for number in range(50)},
    facts=lambda tables: {"tables": len(tables)},
    fingerprint=str,
    validate=lambda tables, decision: None,
    quality=lambda tables, decision: {"tables": len(decision)},
    observe=lambda recorder: nullcontext(),
)
PLANNING = Planning(
    "in-set-order",
    lambda tables, decision: {"order": decision},
    lambda tables, decision: RankTable(("tables",), ((50.0,),), (None,), "tables"),
)
FAMILY = Family(
    "seeds", "orders tables", WORK, (Quality("tables"),),
    abilities=Abilities(
        planning=PLANNING,
        explain=lambda tables, decision, question: Explanation((" ".join(decision),), (), {}),
    ),
)


@FAMILY.variant("in-set-order", reference=True)
def in_set_order(tables):
    return Prepared(run=lambda: list(tables))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with a family whose decisions depend on the order of a set of strings."""
    (tmp_path / "seeds.py").write_text(FAMILY)
    about = tmp_path / "seeds-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: seeds\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[shardbench.families]\nseeds = seeds:FAMILY\n")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "out"),
    [
        ("plan --family seeds -w any -t dgx_h100 -n 1 -o plan.json", "plan.json"),
        ("explain seeds/in-set-order@any/dgx_h100:1 -o why.md", "why.md"),
    ],
)
def test_the_hash_seed_of_the_shell_changes_no_decision(package: Path, command: str, out: str):
    """A plan and an explanation are the same under two hash seeds."""
    written = set()
    for seed in ("1", "2"):
        paths = [str(package), str(Path(__file__).parents[2])]
        variables = {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(paths)}
        subprocess.run(
            [sys.executable, "-m", "shardbench", *command.split()],
            check=True,
            capture_output=True,
            cwd=package,
            env=os.environ | variables,
        )
        lines = (package / out).read_text().splitlines()
        written.add("".join(line for line in lines if "table" in line))
    assert len(written) == 1
