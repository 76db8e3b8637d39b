"""Imports between packages go one way, without cycles, and listing variants imports little."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from inspect import ismodule
from pathlib import Path

import pytest

from harness import contract

ROOT = Path(__file__).parents[2]

# What each package may import of the others. Only the command line knows how a report is written.
ALLOWED = {
    "harness": (),
    "planners": ("harness",),
    "reports": ("harness",),
    "benchmarks": ("harness",),
    "shardbench": ("harness", "reports"),
}
# Libraries that belong to one family; versions of theirs are noted with every result.
LIBRARIES = ("torchrec", "fbgemm", "colossalai", "paddle", "dtensor", "dimspec")
NAMING = "harness/model/machine.py"
# The names that users import are those of planners; no command knows one.
OF_USERS = "shardbench/__init__.py"


@cache
def sources() -> dict[str, tuple[ast.AST, ...]]:
    """Return the nodes of each source file, by its path."""
    paths = [path for package in ALLOWED for path in sorted((ROOT / package).rglob("*.py"))]
    return {
        str(path.relative_to(ROOT)): tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        for path in paths
    }


@cache
def imports(package: str) -> set[tuple[str, str]]:
    """Return each file of a package with each full name that it imports, also in functions."""
    pairs = set()
    for file, source in sources().items():
        if not file.startswith(f"{package}/"):
            continue
        for node in source:
            if isinstance(node, ast.Import):
                pairs.update((file, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, "imports name the whole module"
                pairs.update((file, f"{node.module}.{alias.name}") for alias in node.names)
    assert pairs, package
    return pairs


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_point_one_way(package):
    """A package imports only those below it."""
    forbidden = ALLOWED.keys() - {package, *ALLOWED[package]}
    assert {
        (file, name)
        for file, name in imports(package)
        if name.partition(".")[0] in forbidden - ({"planners"} if file == OF_USERS else set())
    } == set()


def test_planners_import_of_the_harness_its_contract_alone():
    """Authors of planners need no other module."""
    public = [name for name, value in vars(contract).items() if not ismodule(value)]
    allowed = {f"harness.contract.{name}" for name in public}
    of_harness = {name for _, name in imports("planners") if name.partition(".")[0] == "harness"}
    assert of_harness - allowed == set()


def test_the_harness_knows_no_planner_and_no_library_of_one_by_name():
    """A family can be deleted without a change of the harness."""
    families = [path.name for path in (ROOT / "planners").iterdir() if path.is_dir()]
    names = "|".join([*(name for name in families if not name.startswith("_")), *LIBRARIES])
    named = re.compile(rf"\b({names})\b", re.IGNORECASE)
    assert {
        (file, text)
        for file, source in sources().items()
        if file.startswith("harness/") and file != NAMING
        for text in texts(source)
        if named.search(text)
    } == set()


def texts(source: tuple[ast.AST, ...]) -> Iterator[str]:
    """Yield the names and string literals in a source, without docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        ast.get_docstring(node, clean=False) for node in source if isinstance(node, documented)
    }
    for node in source:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value not in docstrings:
                yield node.value
        elif isinstance(node, ast.Name):
            yield node.id


@cache
def dependencies() -> dict[str, set[str]]:
    """Return for each file the files of this project that it imports."""
    files: dict[str, set[str]] = {file: set() for file in sources()}
    for package in ALLOWED:
        for file, name in imports(package):
            for module in (name, name.rpartition(".")[0]):  # a module, or a name in one
                path = module.replace(".", "/")
                known = {f"{path}.py", f"{path}/__init__.py"} & files.keys()
                if known:
                    files[file] |= known
                    break
    return files


def circle(edges: Mapping[str, set[str]]) -> list[str]:
    """Return the nodes of one cycle of a graph, or [] if it has none."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_files_import_each_other_in_a_circle():
    """Neither files nor folders have cycles."""
    assert circle(dependencies()) == []


def test_no_rooms_import_each_other_in_a_circle():
    """Checked for each folder: every entry counts as one node, with all files below it."""
    files = dependencies()
    for folder in {parent for file in files for parent in Path(file).parents}:
        depth = len(folder.parts)
        entry = {file: Path(file).parts[depth] for file in files if folder in Path(file).parents}
        edges: dict[str, set[str]] = {name: set() for name in entry.values()}
        for file, name in entry.items():
            edges[name] |= {entry[other] for other in files[file] & entry.keys()} - {name}
        assert circle(edges) == [], folder


def test_no_library_that_takes_seconds_is_imported_to_list_the_variants():
    """Listing works quickly, and without the libraries."""
    script = """
import sys
import shardbench.cli
assert not {"multiprocessing", "msgspec", "rich"} & set(sys.modules), "needed by no help"
import harness.measuring.comparison
from harness.contract.registry import load_registry
registry = load_registry()
for family in registry.families:
    assert family.variants
    for variant in family.variants.values():
        variant.missing()
assert not registry.failures, registry.failures
slow = ("torch", "torchrec", "fbgemm_gpu", "numba", "numpy", "pandas", "scipy", "matplotlib")
print([name for name in slow if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
