"""Imports between packages go one way, without cycles, and listing variants imports little."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from inspect import ismodule
from pathlib import Path

import pytest

from harness import contract

ROOT = Path(__file__).parents[2]
PACKAGES = ("harness", "planners", "reports", "benchmarks", "shardbench")

# What each may import of the others. Only the command line knows how a report is written.
ALLOWED = {
    "harness": set(),
    "planners": {"harness"},
    "reports": {"harness"},
    "benchmarks": {"harness"},
    "shardbench": {"harness", "reports"},
}
# Libraries that belong to one family; versions of theirs are noted with every result.
LIBRARIES = ("torchrec", "fbgemm", "colossalai", "paddle", "dtensor", "dimspec")
NAMING = ("harness/model/machine.py",)
# The names that users import are those of planners; no command knows one.
OF_USERS = "shardbench/__init__.py"


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file's source."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imported_modules(source: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the full name of each module that a source imports, also inside functions."""
    for node in source:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole module"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("import_module", "importlib.import_module", "__import__")
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield str(node.args[0].value)


@cache
def imports(package: str) -> dict[str, set[str]]:
    """Return the modules that each file of a package imports."""
    files = sorted((ROOT / package).rglob("*.py"))
    assert files, package
    return {str(path.relative_to(ROOT)): set(imported_modules(nodes(path))) for path in files}


def test_the_reader_of_imports_sees_all_of_them():
    source = """
import a.b
from c import d
def function():
    from e.f import g
    import importlib
    importlib.import_module("h.i")
if TYPE_CHECKING:
    import j
"""
    assert set(imported_modules(ast.walk(ast.parse(source)))) == {
        *("a.b", "c", "c.d", "e.f", "e.f.g", "importlib", "h.i", "j")
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way(package: str):
    forbidden = set(PACKAGES) - ALLOWED[package] - {package}
    wrong = {
        (file, module)
        for file, modules in imports(package).items()
        for module in modules
        if module.partition(".")[0] in forbidden - ({"planners"} if file == OF_USERS else set())
    }
    assert wrong == set()


def test_planners_import_of_the_harness_its_contract_alone():
    public = {name for name, value in vars(contract).items() if not ismodule(value)}
    allowed = {"harness.contract", *(f"harness.contract.{name}" for name in public)}
    wrong = {
        (file, module)
        for file, modules in imports("planners").items()
        for module in modules
        if module.partition(".")[0] == "harness" and module not in allowed
    }
    assert wrong == set()


def test_the_harness_knows_no_planner_and_no_library_of_one_by_name():
    families = [path.name for path in (ROOT / "planners").iterdir() if path.is_dir()]
    names = "|".join([*(name for name in families if not name.startswith("_")), *LIBRARIES])
    named = re.compile(rf"\b({names})\b", re.IGNORECASE)
    found = {
        (str(path.relative_to(ROOT)), text)
        for path in (ROOT / "harness").rglob("*.py")
        for text in texts(nodes(path))
        if named.search(text)
    }
    assert {(file, text) for file, text in found if file not in NAMING} == set()


def texts(source: Iterable[ast.AST]) -> Iterator[str]:
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
    files = {
        str(path.relative_to(ROOT)) for each in PACKAGES for path in (ROOT / each).rglob("*.py")
    }

    def file_of(module: str) -> str | None:
        path = module.replace(".", "/")
        return next((f for f in (f"{path}.py", f"{path}/__init__.py") if f in files), None)

    found: dict[str, set[str]] = {}
    for file in files:
        held = found.setdefault(file, set())
        for node in nodes(ROOT / file):
            if isinstance(node, ast.Import):
                held |= {each for alias in node.names if (each := file_of(alias.name))}
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    each = file_of(f"{node.module}.{alias.name}") or file_of(node.module or "")
                    held |= {each} if each else set()
    return found


def circle(edges: Mapping[str, set[str]]) -> list[str]:
    """Return the nodes of one cycle of a graph, or [] if it has none."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_files_import_each_other_in_a_circle():
    assert circle(dependencies()) == []


def test_no_rooms_import_each_other_in_a_circle():
    """Checked for each folder: every entry counts as one node, with all files below it."""
    files = dependencies()
    inside: dict[tuple[str, ...], set[str]] = {}
    for file in files:
        for parent in Path(file).parents:
            inside.setdefault(parent.parts, set()).add(file)
    for folder, held in sorted(inside.items()):
        names = {file: file.split("/")[len(folder)] for file in held}
        edges: dict[str, set[str]] = {}
        for file, name in names.items():
            others = {names[each] for each in files[file] & held}
            edges.setdefault(name, set()).update(others - {name})
        assert circle(edges) == [], folder


def test_no_library_that_takes_seconds_is_imported_to_list_the_variants():
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
