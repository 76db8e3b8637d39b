"""Every imported library is declared, with a range that includes the pinned release."""

import ast
import re
import sys
import tomllib
from pathlib import Path

from environments import PACKAGES, ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# A training job has its own; what belongs to one upstream or one command alone is looked for first.
NOT_DECLARED = {
    "torch",
    "torchrec",
    "fbgemm_gpu",
    "colossalai",
    "paddle",
    "autoparallel",
    "pulp",
    "pytoulbar2",
}
OPTIONAL = {"distributed": "dask", "ortools": "proofs"}
"""The extra of each module."""


def imported(path: Path) -> set[str]:
    """Return the top-level names of the modules that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def test_what_is_imported_is_declared():
    """Optional libraries belong to an extra; those of jobs are not declared."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    found = set().union(*map(imported, files)) - sys.stdlib_module_names - {*PACKAGES}
    assert found >= NOT_DECLARED
    declared = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    named = found - NOT_DECLARED - set(OPTIONAL)
    assert set(map(canonicalize_name, named)) <= declared
    of_jobs = {*map(canonicalize_name, NOT_DECLARED), "fbgemm-gpu-cpu"}
    assert declared & of_jobs == set()
    assert set(OPTIONAL.values()) == set(PROJECT["optional-dependencies"])


def test_what_is_pinned_is_allowed():
    """The ranges of the project contain the releases that it is tested with."""
    pinned = re.findall(
        r"^([\w-]+)==([\w.]+)", (ROOT / "requirements.txt").read_text("utf-8"), re.MULTILINE
    )
    releases = {canonicalize_name(name): release for name, release in pinned}
    for text in PROJECT["dependencies"]:
        requirement = Requirement(text)
        release = releases.get(canonicalize_name(requirement.name))
        assert release is None or release in requirement.specifier, text
